"""The scalar functions of generated code: vectorised, accurate, right at the edges."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import dace
import numpy as np
import pytest
import torch

import daceml
from benchmarks import vector_math
from daceml.config import config

_DACE = Path(dace.__file__).parent / "runtime" / "include"
_DACEML = Path(daceml.__path__[0]) / "runtime" / "include"
_FLAGS = (
    "-std=c++20",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fdisable-tree-cunrolli",
    "-shared",
    "-fPIC",
    "-w",
)
FUNCTIONS = [*vector_math.FUNCTIONS, "sin", "cos", "sqrt"]
# Every 127th float: 34 million, of every sign and exponent
STRIDE = 127
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.8, -103.9, 1e30, -1e30, 1e-10], np.float32
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("scalar_math")
    loops = [
        f'extern "C" void {f}_f(const float* __restrict__ x, float* __restrict__ y, long n) '
        f"{{ for (long i = 0; i < n; ++i) y[i] = {f}(x[i]); }}"
        for f in FUNCTIONS
    ]
    pairs = {"nan_max": "double", "nan_min": "double", "floor_mod": "double"}
    pairs |= {
        f"{f}_i": "int" for f in ("trunc_div", "trunc_mod", "floor_mod", "floor_div", "int_pow", "shift_left")
    }
    loops += [
        f'extern "C" {t} {name}_2({t} a, {t} b) {{ return {name.removesuffix("_i")}(a, b); }}'
        for name, t in pairs.items()
    ]
    loops += [
        f'extern "C" void {f}_d(const double* x, double* y, double* z, long n) '
        f"{{ for (long i = 0; i < n; ++i) y[i] = {f}(x[i]), z[i] = ::{f}(x[i]); }}"
        for f in vector_math.FUNCTIONS
    ]
    # as generated kernels stand
    source = "\n".join(["#include <daceml/kernel.h>", "namespace daceml::kernel {", *loops, "}"])
    (folder / "m.cpp").write_text(source)
    command = [config().cxx, *_FLAGS, f"-I{_DACE}", f"-I{_DACEML}", "m.cpp", "-o", "m.so", "-lmvec", "-lm"]
    done = subprocess.run(
        [*command, "-fopt-info-vec-optimized"], cwd=folder, capture_output=True, text=True, check=True
    )
    loaded = ctypes.CDLL(str(folder / "m.so"))
    loaded.path = folder / "m.so"
    loaded.vectorised = {
        source.splitlines()[int(line.split(":")[1]) - 1].split("(")[0].split()[-1].removesuffix("_f")
        for line in done.stderr.splitlines()
        if line.startswith("m.cpp:") and "loop vectorized" in line
    }
    return loaded


def call(library: ctypes.CDLL, function: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    pointer = ctypes.c_void_p
    library[f"{function}_f"](x.ctypes.data_as(pointer), y.ctypes.data_as(pointer), ctypes.c_long(x.size))
    return y


def exact(function: str, x: np.ndarray) -> np.ndarray:
    if function == "erf":
        return torch.erf(torch.from_numpy(x.astype(np.float64))).numpy()
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        return 1 / (1 + np.exp(-wide)) if function == "sigmoid" else getattr(np, function)(wide)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_at_most_4_ulp_on_a_sample_of_all_floats(library: ctypes.CDLL, function: str) -> None:
    x = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = x[np.isfinite(x)]
    if function in ("sin", "cos"):
        x = x[np.abs(x) < 1e4]
    expected, actual = exact(function, x), call(library, function, x)
    with np.errstate(over="ignore"):
        narrow = expected.astype(np.float32)
    assert np.array_equal(np.isnan(actual), np.isnan(narrow))
    known = np.isfinite(narrow) & ~np.isnan(narrow)
    spacing = np.spacing(np.abs(narrow[known])).astype(np.float64)
    assert np.max(np.abs(actual[known].astype(np.float64) - expected[known]) / spacing) <= 4
    assert np.array_equal(actual[np.isinf(narrow)], narrow[np.isinf(narrow)])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_special_values(library: ctypes.CDLL, function: str) -> None:
    x = np.repeat(SPECIAL, 8)  # every lane of a vector sees every value
    with np.errstate(all="ignore"):
        expected = exact(function, x).astype(np.float32)
    if function in ("sin", "cos"):
        finite = np.abs(x) < 1e4
        x, expected = x[finite], expected[finite]
    np.testing.assert_allclose(call(library, function, x), expected, rtol=5e-7, atol=1e-44)


def test_loops_call_the_vector_library(library: ctypes.CDLL) -> None:
    if platform.libc_ver()[0] != "glibc" or platform.machine() != "x86_64":
        pytest.skip("no vector library: it is glibc's, on x86-64")
    assert {f for f in ("sinf", "cosf") if f"v_{f}" not in symbols(library)} == set()


def symbols(library: ctypes.CDLL) -> str:
    command = ["nm", "-D", "--undefined-only", str(library.path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_loops_over_our_functions_are_vectors_and_call_nothing(library: ctypes.CDLL) -> None:
    called = symbols(library)
    assert {f for f in vector_math.FUNCTIONS if f"{f}f" in called} == set()
    assert set(vector_math.FUNCTIONS) - library.vectorised == set()


@pytest.mark.parametrize("function", vector_math.FUNCTIONS)
def test_one_value_has_the_bits_that_it_has_in_a_vector(library: ctypes.CDLL, function: str) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-120, 120, 4001, dtype=np.float32)])
    alone = np.concatenate([call(library, function, x[i : i + 1]) for i in range(x.size)])
    assert np.array_equal(call(library, function, x).view(np.int32), alone.view(np.int32))


@pytest.mark.parametrize("function", vector_math.FUNCTIONS)
def test_double_keeps_the_functions_of_the_c_library(library: ctypes.CDLL, function: str) -> None:
    x = np.linspace(0.001, 40, 1000)
    y, z = np.empty_like(x), np.empty_like(x)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (x, y, z)]
    library[f"{function}_d"](*pointers, ctypes.c_long(x.size))
    assert np.array_equal(y, z)
    np.testing.assert_allclose(y, exact(function, x), rtol=1e-14)


@pytest.fixture(scope="module", params=["this processor", "no fused multiply-add"])
def comparisons(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if request.param == "this processor":
        return vector_math.compiled(tmp_path_factory.mktemp("fused"))
    if platform.machine() != "x86_64":
        pytest.skip("every other processor has the instruction")
    return vector_math.compiled(tmp_path_factory.mktemp("not_fused"), ["-march=x86-64-v2"])


@pytest.mark.parametrize("function", vector_math.FUNCTIONS)
def test_at_most_4_ulp_from_the_function_of_double(comparisons: ctypes.CDLL, function: str) -> None:
    seen = vector_math.errors(comparisons, function, STRIDE)
    assert (seen.worst_ulp <= vector_math.MOST_ULP, seen.faults) == (True, 0), seen


@pytest.mark.parametrize(
    ("function", "a", "b", "expected"),
    [
        ("trunc_div_i", -7, 2, -3),
        ("trunc_div_i", 5, 0, 0),
        ("trunc_div_i", -(2**31), -1, -(2**31)),
        ("trunc_mod_i", -7, 2, -1),
        ("trunc_mod_i", 7, 0, 0),
        ("floor_mod_i", -7, 3, 2),
        ("floor_mod_i", 7, -3, -2),
        ("floor_div_i", -7, 2, -4),
        ("floor_div_i", 7, 2, 3),
        ("int_pow_i", -3, 3, -27),
        ("int_pow_i", 2, -1, 0),
        ("int_pow_i", -1, -3, -1),
        ("shift_left_i", 3, 2, 12),
        ("shift_left_i", 3, 32, 0),
    ],
)
def test_integers(library: ctypes.CDLL, function: str, a: int, b: int, expected: int) -> None:
    assert library[f"{function}_2"](a, b) == expected


@pytest.mark.parametrize("order", [1, -1])
def test_extremes_keep_nan(library: ctypes.CDLL, order: int) -> None:
    for function, expected in (("nan_max", 2.0), ("nan_min", 1.0)):
        pair = library[f"{function}_2"]
        pair.restype, pair.argtypes = ctypes.c_double, (ctypes.c_double, ctypes.c_double)
        assert pair(*(1.0, 2.0)[::order]) == expected
        assert np.isnan(pair(*(1.0, np.nan)[::order]))
