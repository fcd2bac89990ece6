"""Divisions of sizes in one form: the values are Python's, in Python and in C++."""

from __future__ import annotations

import itertools
import math
import subprocess
from pathlib import Path
from typing import Any

import dace
import pytest

import daceml.toolchain
from daceml.frontend.onnx_import.identifiers import Names
from daceml.frontend.onnx_import.symbols import SymbolTable
from daceml.runtime.binding import evaluate_size
from daceml.sdfg.rounded_division import floor_div, never_negative
from daceml.sdfg.sizes import cpp, text

INCLUDE = Path(daceml.toolchain.__file__).parent / "include"
SIZES = list(itertools.product(range(1, 14), range(1, 6)))
PYTHON = {
    "ceiling": math.ceil, "floor": math.floor, "Max": max, "Min": min, "Abs": abs, "max": max, "min": min,
    "Mod": lambda a, b: a % b, "PythonMod": lambda a, b: a % b, "int_ceil": lambda a, b: -(-a // b),
    "FloorToInt": math.floor, "CeilToInt": math.ceil, "TruncToInt": int, "ToFloat": float,
    "IntTrueDiv": lambda a, b: a / b,
}  # fmt: skip
TEXTS = [
    "n//2", "(n-5)//2+1", "-((-n)//4)*4", "Mod(-n,4)", "n%4", "(4-n%4)%4", "PythonMod(-n, 7)", "n**3",
    "Max(n,4)", "min(n//2,m,7)", "max(1,n-m)", "Abs(n-5)", "ceiling(n/2)", "floor((n+1)/3)", "int_ceil(n,3)",
    "(n//2)%3", "((n-1)//2)//2+1", "(n+m)//2", "(n-m)//2", "-n//4", "n//m", "n%m", "(n*m)//m", "n-n//2",
    "min(n-5,m)", "min(n-5,m)//2", "(max(n,m)-n)//2", "m*min(n-5,m)//4", "m*min(n-5,m)",
    "9-max(n,m)", "n-min(n,m)", "max(n,m)-n", "min(n,m)*max(n-2,1)",
    "((n+2)//3)*3-n", "CeilToInt(IntTrueDiv(n,4))", "(n//2+1)//2*2", "(n//2)//3 + (n%2)*m", "n*(n+1)/2",
    "FloorToInt(0.75*ToFloat(n))", "TruncToInt(ToFloat(n)/2)",
]  # fmt: skip


def parsed(size: str) -> Any:
    return SymbolTable(["n", "m", size], Names(), {}).dim(size)


@pytest.mark.parametrize("size", TEXTS)
def test_a_size_has_the_value_that_its_text_has_in_python(size: str):
    found = parsed(size)
    for n, m in SIZES:
        value = evaluate_size(text(found), {"n": n, "m": m})
        expected = eval(size, {**PYTHON, "n": n, "m": m})
        assert (value, type(value)) == (expected, int)
        assert expected >= 0 or not never_negative(found)


def test_cpp_computes_the_same(tmp_path: Path):
    """Every function that a size can have is declared for the driver."""
    lines = [f'std::printf("%ld\\n", (long){cpp(parsed(size))});' for size in TEXTS]
    loops = "for (int64_t n = 1; n < 14; ++n) for (int64_t m = 1; m < 6; ++m) {"
    (tmp_path / "sizes.cpp").write_text(
        "#include <cstdio>\n#include <daceml/size_functions.h>\n"
        f"int main() {{ {loops}\n{chr(10).join(lines)}\n}} }}\n",
        encoding="utf-8",
    )
    program = tmp_path / "sizes"
    source = str(tmp_path / "sizes.cpp")
    subprocess.run(["g++", "-std=c++17", "-w", f"-I{INCLUDE}", source, "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    expected = [int(eval(size, {**PYTHON, "n": n, "m": m})) for n, m in SIZES for size in TEXTS]
    assert [int(line) for line in printed] == expected


def test_equal_sizes_are_one_expression():
    for one, other in [
        ("(4-n%4)%4", "(-n)%4"),
        ("(n+3)//4", "-((-n)//4)"),
        ("(n+3)//4", "ceiling(n/4)"),
        ("(n//2)//3", "n//6"),
        ("((n-1)//2+1-1)//2+1", "(n+3)//4"),
        ("(2*n+1)//4", "n//2"),
        ("(4*n+m)//4", "n+m//4"),
    ]:
        assert parsed(one) == parsed(other), one


def test_what_is_seen_to_be_no_less_than_zero():
    sizes = ("n//2", "n%4", "(-n)%4", "n-n//2", "(n//2)%3", "Max(n-m,0)", "n*m-1", "n-min(n,m)", "max(n,m)-n")
    for size in sizes:
        assert never_negative(parsed(size)), size
    for size in ("n-2", "n-m", "(n-5)//2", "Min(n,m)-2"):
        assert not never_negative(parsed(size)), size


def test_products_that_float64_rounds_are_no_sizes():
    """0.7 * 10 is 7, and the number that is written as 0.7 is smaller than 7 / 10."""
    assert parsed("FloorToInt(0.7*n)").is_Symbol


def test_nothing_is_divided_by_zero():
    with pytest.raises(ZeroDivisionError):
        floor_div(dace.symbol("n", dace.int64, positive=True), 0)
