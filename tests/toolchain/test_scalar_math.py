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
from tests.support.sampling import sampled

_DACE = Path(dace.__file__).parent / "runtime" / "include"
_DACEML = Path(daceml.__path__[0]) / "toolchain" / "include"
_LANES = Path(daceml.__path__[0]) / "codegen" / "vector_lanes.cpp"
_FLAGS = (
    "-std=c++20",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fdisable-tree-cunrolli",
    "-fPIC",
    "-w",
)
FUNCTIONS = [*vector_math.FUNCTIONS, "sin", "cos", "sqrt"]
# Those of glibc's vector library
LANES = ["exp", "log", "log1p", "expm1", "tanh", "erf", "erfc", "sin", "cos", "tan", "asin", "acos", "atan"]
LANES += ["sinh", "cosh", "asinh", "acosh", "atanh"]
# Every 127th float, or 1021st: 34 million, or 4, of every sign and exponent
STRIDES = [127, 1021]
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
        f'extern "C" void {f}_{t}(const {t}* __restrict__ x, {t}* __restrict__ y, long n) '
        f"{{ for (long i = 0; i < n; ++i) y[i] = {f}({more}x[i]); }}"
        for t in ("double", "float")
        for f, more in (*((f, "") for f in (*LANES, "sigmoid")), ("pow", f"{t}(1.25), "))
    ]
    # as generated kernels stand
    source = "\n".join(["#include <daceml/kernel.h>", "namespace daceml::kernel {", *loops, "}"])
    (folder / "m.cpp").write_text(source)
    compiler = [config().cxx, *_FLAGS, f"-I{_DACE}", f"-I{_DACEML}"]
    subprocess.run([*compiler, "-c", str(_LANES), "-o", "lanes.o"], cwd=folder, check=True)
    command = [*compiler, "-fopt-info-vec-optimized", "-c", "m.cpp", "-o", "m.o"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    link = [config().cxx, "-shared", "m.o", "lanes.o", "-o", "m.so", "-lmvec", "-lm"]
    subprocess.run(link, cwd=folder, check=True)
    loaded = ctypes.CDLL(str(folder / "m.so"))
    loaded.object = folder / "m.o"
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
    vectors = {name.partition("v_daceml_")[2] for name in symbols(library)}
    assert {"sinf", "cosf", "exp", "tanh"} <= vectors


def symbols(library: ctypes.CDLL) -> set[str]:
    """Functions that the loops call."""
    command = ["nm", "--undefined-only", str(library.object)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in said.splitlines()}


def test_loops_over_our_functions_are_vectors_and_call_nothing(library: ctypes.CDLL) -> None:
    floats = {f"{f}f" for f in vector_math.FUNCTIONS}
    assert {name for name in symbols(library) if name.rpartition("_")[2] in floats} == set()
    assert set(vector_math.FUNCTIONS) - library.vectorised == set()


@pytest.mark.parametrize("function", vector_math.FUNCTIONS)
def test_one_value_has_the_bits_that_it_has_in_a_vector(library: ctypes.CDLL, function: str) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-120, 120, 4001, dtype=np.float32)])
    alone = np.concatenate([call(library, function, x[i : i + 1]) for i in range(x.size)])
    assert np.array_equal(call(library, function, x).view(np.int32), alone.view(np.int32))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", [*LANES, "sigmoid", "pow"])
def test_the_same_bits_alone_and_in_vectors_of_every_width(
    library: ctypes.CDLL, function: str, dtype: type[np.floating]
) -> None:
    x = np.concatenate([np.linspace(-40, 40, 997), np.linspace(-1, 1, 1011), SPECIAL]).astype(dtype)
    loop, pointer = library[f"{function}_{'double' if dtype is np.float64 else 'float'}"], ctypes.c_void_p

    def values(of: np.ndarray) -> np.ndarray:
        y = np.empty_like(of)
        loop(of.ctypes.data_as(pointer), y.ctypes.data_as(pointer), ctypes.c_long(of.size))
        return y

    wide = torch.from_numpy(x).double()
    wanted = torch.pow(1.25, wide) if function == "pow" else getattr(torch, function)(wide)
    for count in (1, 2, 3, 4, 7, 8, 15, 16, 31, x.size):
        parts = [values(x[i : i + count]) for i in range(0, x.size, count)]
        np.testing.assert_array_equal(np.concatenate(parts), values(x))
    tolerance = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(
        values(x), wanted.to(torch.from_numpy(x).dtype).numpy(), rtol=tolerance, atol=tolerance
    )


@pytest.fixture(scope="module", params=["this processor", "no fused multiply-add"])
def comparisons(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if request.param == "this processor":
        return vector_math.compiled(tmp_path_factory.mktemp("fused"))
    if platform.machine() != "x86_64":
        pytest.skip("every other processor has the instruction")
    return vector_math.compiled(tmp_path_factory.mktemp("not_fused"), ["-march=x86-64-v2"])


@pytest.mark.parametrize("stride", sampled(STRIDES, 1021))
@pytest.mark.parametrize("function", vector_math.FUNCTIONS)
def test_at_most_4_ulp_from_the_function_of_double(
    comparisons: ctypes.CDLL, function: str, stride: int
) -> None:
    seen = vector_math.errors(comparisons, function, stride)
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
