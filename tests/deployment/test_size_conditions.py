"""A library with open sizes takes those for which the traced forward is right, and says why not of others."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import sympy
import torch
from torch import nn
from torch.utils._sympy.functions import FloorDiv, Mod

import daceml
from daceml.deployment.exporting import Exported
from daceml.deployment.interface import Tensor
from daceml.deployment.size_conditions import size_check, size_conditions
from daceml.errors import CallError, DeploymentError
from daceml.frontend.capture.sizes.dynamic_shapes import SizeGuard
from tests.support.golden import golden, raises


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 8 else x + 1


class Fours(nn.Module):
    def forward(self, x: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 4) * 2


@pytest.fixture(scope="module")
def branching(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("branching") / "made"
    return daceml.export(Branching().eval(), torch.randn(4, 3), to=folder, dynamic=True)


def test_a_branch_on_a_size_is_a_condition(branching: Exported):
    model, made = Branching().eval(), branching
    loaded = daceml.load(made.folder)
    for rows in (2, 4, 8):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(loaded(x), model(x))
    with raises(CallError, "size 0 of x is 16", "2 to 8"):
        loaded(torch.randn(16, 3))
    assert list(made.manifest.sizes.ranges.values()).count((2, 8)) == 1
    assert daceml.load(made.folder).manifest.sizes == made.manifest.sizes
    (rows,) = (letter for letter, place in made.manifest.sizes.symbols.items() if place == (0, 0))
    assert f" *   {rows}: 2 to 8\n" in (made.folder / "model.h").read_text()


def test_some_sizes_are_open_and_others_fixed(tmp_path: Path):
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 3, stride=2).eval()
    made = daceml.export(model, torch.randn(2, 3, 9, 11), to=tmp_path / "made", dynamic=True)
    loaded, x = daceml.load(made.folder), torch.randn(5, 3, 12, 10)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model(x), rtol=1e-4, atol=1e-5)  # sums in another order
    with raises(CallError, "input 0", "[5, 2, 12, 10]", "[?, 3, ?, ?]"):
        loaded(torch.randn(5, 2, 12, 10))


@pytest.mark.parametrize("size", [0, 1])
def test_sizes_of_0_and_1_are_refused(size: int, branching: Exported):
    with raises(CallError, f"size 1 of x is {size}", "2 to any"):
        daceml.load(branching.folder)(torch.randn(4, size))


def test_a_reshape_is_a_condition_for_programs_of_c_too(tmp_path: Path):
    model, unused = Fours().eval(), torch.randn(3)
    made = daceml.export(model, torch.randn(6, 8), unused, to=tmp_path / "made", dynamic=True)
    x = torch.randn(6, 10)
    torch.testing.assert_close(daceml.load(made.folder)(x, unused), model(x, unused))
    (tmp_path / "main.cpp").write_text(
        '#include <cstdio>\n#include "model.h"\nint main(int, char** words) {\n'
        "  char error[512]; model_model* model = model_load(words[1], error, sizeof error);\n"
        "  float x[15] = {}, y[16]; const int64_t of_x[] = {5, 3}, of_unused[] = {3};\n"
        "  const void* inputs[] = {x, x}; void* results[] = {y};\n"
        "  const int64_t* sizes[] = {of_x, of_unused};\n"
        "  const int failed = model_run(model, inputs, sizes, results, error, sizeof error);\n"
        "  return std::puts(error), failed; }\n"
    )
    place = made.folder
    command = ["g++", "main.cpp", f"-I{place}", f"-L{place}", "-lmodel", f"-Wl,-rpath,{place}", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    run = subprocess.run(
        [tmp_path / "main", place / "weights.bin"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, re.sub(r"\bs\d+\b", "s", run.stdout)) == (1, golden())  # torch numbers symbols
    assert "Mod(" in run.stdout and "size 0 of x) is 5" in run.stdout


def _guard(*conditions: object) -> tuple[SizeGuard, tuple[Tensor, ...]]:
    n, m = sympy.Symbol("n", integer=True), sympy.Symbol("m", integer=True)
    guard = SizeGuard(shapes=((n, m), (2 * n,)), ranges={n: (2, 90), m: (2, None)}, conditions=conditions)
    inputs = tuple(Tensor(name=name, dtype="float32", code=6, shape=()) for name in ("x", "y"))
    return guard, inputs


def test_the_check_in_c_is_that_of_the_guard(tmp_path: Path):
    n, m = sympy.Symbol("n", integer=True), sympy.Symbol("m", integer=True)
    guard, inputs = _guard(
        sympy.Eq(Mod(n * m, 3), 0), sympy.Ne(FloorDiv(n, 4), 2), sympy.Or(n > 5, sympy.Eq(m, 6)),
        sympy.Eq(sympy.Max(n, m) - sympy.Min(n, m), sympy.Max(n, m) - sympy.Min(n, m)),
        n / 3 + sympy.Rational(1, 2) < m**2,
    )  # fmt: skip
    text = size_check(guard, inputs) + (
        'extern "C" int refused(const int64_t* const* sizes) { return !refused_sizes(sizes).empty(); }'
    )
    (tmp_path / "check.cpp").write_text(text)
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-shared", "-fPIC", "check.cpp", "-o", "check.so"]
    subprocess.run(command, check=True, cwd=tmp_path)
    refused = ctypes.CDLL(str(tmp_path / "check.so")).refused
    taken = 0
    for rows in (0, 1, 2, 3, 6, 8, 9, 11, 12, 90, 93):
        for columns in (0, 1, 2, 3, 5, 6):
            for double in (2 * rows, 2 * rows + 1):
                shapes = ((rows, columns), (double,))
                arrays = [(ctypes.c_int64 * len(shape))(*shape) for shape in shapes]
                found = refused((ctypes.c_void_p * 2)(*map(ctypes.addressof, arrays)))
                assert bool(found) is (guard.problem(shapes) is not None), shapes
                taken += not found
    assert taken > 5


def test_what_has_no_form_in_c_is_refused():
    guard, inputs = _guard(sympy.sin(sympy.Symbol("n", integer=True)) > 0)
    with raises(DeploymentError, "sin(n)"):
        size_check(guard, inputs)


def test_fixed_sizes_have_no_conditions():
    assert size_conditions(None).symbols == {}
    assert 'return "";' in size_check(None, ())
