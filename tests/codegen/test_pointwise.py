"""The loops of pointwise convolutions: float64's numbers at odd sizes, NaN and infinities in their places."""

from __future__ import annotations

import ctypes
import itertools
import math
import platform
import subprocess
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from daceml.runtime.records.manifest import PreparedRecord
from daceml.runtime.weight_preparation import prepared_weights
from daceml.toolchain.cxx import include_folder, toolchain
from tests.support.sampling import sampled

_SOURCE = """
#include <daceml/pointwise.h>
extern "C" void pointwise(const float* x, const float* weight, const float* bias, const float* other,
                          float* y, const int64_t* numbers, float low, float high, int swish) {
  const auto& geometry = *reinterpret_cast<const daceml::Pointwise*>(numbers);
  daceml::pointwise::Call{geometry, x, weight, bias, other, y, low, high, swish != 0}.run();
}
"""
# Elements behind a result that nobody may write
_GUARD = 64
INF, NAN = math.inf, math.nan


_MACHINES = ["native", "x86-64"] if platform.machine() == "x86_64" else ["native"]


@pytest.fixture(scope="module", params=_MACHINES)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The loops as this processor has them, and in vectors of 128 bits, whose products are rounded."""
    folder: Path = tmp_path_factory.mktemp("pointwise")
    (folder / "pointwise.cpp").write_text(_SOURCE)
    flags = [f"-march={request.param}" if f == "-march=native" else f for f in toolchain().flags]
    command = [toolchain().cxx, *flags, f"-I{include_folder()}", "-shared", "pointwise.cpp", "-o", "p.so"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    made = ctypes.CDLL(str(folder / "p.so"))
    made.pointwise.argtypes = [*6 * (ctypes.c_void_p,), ctypes.c_float, ctypes.c_float, ctypes.c_int]
    return made


def packed(weight: torch.Tensor) -> torch.Tensor:
    record = PreparedRecord(function="pointwise", keys=("w",), numbers=(), reals=(), read=True)
    return prepared_weights([record], {"w": weight[:, :, None, None]})[0]


def run(
    library: ctypes.CDLL,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    other: torch.Tensor | None = None,
    *,
    strides: tuple[int, int] = (1, 1),
    low: float = -INF,
    high: float = INF,
    swish: bool = False,
) -> torch.Tensor:
    """x: [N, H, W, C] float32, contiguous -> [N, OH, OW, K]."""
    n, h, w, c = x.shape
    oh, ow, k = -(-h // strides[0]), -(-w // strides[1]), weight.shape[0]
    numbers = (ctypes.c_int64 * 9)(n, c, h, w, oh, ow, *strides, k)
    y = torch.full((n * oh * ow * k + _GUARD,), 7.0)
    panels = packed(weight)
    pointers = [None if t is None else t.data_ptr() for t in (x, panels, bias, other, y)]
    library.pointwise(*pointers, ctypes.addressof(numbers), low, high, int(swish))
    assert torch.all(y[-_GUARD:] == 7)
    return y[:-_GUARD].view(n, oh, ow, k)


def exact(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, other: torch.Tensor | None
) -> torch.Tensor:
    y = x.double() @ weight.double().T
    y = y if bias is None else y + bias
    return y if other is None else y + other


# They choose the parts; what a part computes is the same for all.
@pytest.fixture(params=sampled([1, 2, 3], 2))
def threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


IMAGES = [(1, 1, 1), (1, 7, 7), (3, 13, 5), (2, 31, 30)]


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("depth", [1, 3, 17, 300])
@pytest.mark.usefixtures("threads")
def test_numbers_of_odd_sizes(library: ctypes.CDLL, image: tuple[int, int, int], depth: int):
    torch.manual_seed(0)
    for columns, strides in itertools.product((1, 5, 16, 24, 33, 48, 100), ((1, 1), (2, 2), (1, 3))):
        x = torch.randn(*image, depth)
        weight, bias = torch.randn(columns, depth) / depth**0.5, torch.randn(columns)
        read = x[:, :: strides[0], :: strides[1]]
        other = torch.randn(*read.shape[:3], columns)
        # a chain of rounded sums of at most 300 numbers around 1
        close = {"rtol": 1e-6, "atol": 2e-6 if depth < 300 else 1e-5}
        for b, z in ((bias, None), (None, other), (bias, other), (None, None)):
            expected = exact(read, weight, b, z)
            y = run(library, x, weight, b, z, strides=strides)
            torch.testing.assert_close(y.double(), expected, **close)
            y = run(library, x, weight, b, z, strides=strides, low=-0.5, high=0.75)
            torch.testing.assert_close(y.double(), expected.clip(-0.5, 0.75), **close)
            y = run(library, x, weight, b, z, strides=strides, swish=True)
            torch.testing.assert_close(y.double(), functional.silu(expected), **close)


@pytest.mark.parametrize("columns", [24, 40, 64])
@pytest.mark.usefixtures("threads")
def test_nan_and_infinities(library: ctypes.CDLL, columns: int):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 17, 9, 48), torch.randn(columns, 48) / 7
    x[0, 3, 4, 5], x[0, 3, 5, 6], x[1, 2, 3, 40], x[1, 16, 8, 47] = NAN, INF, -INF, 3e38
    x[1, 0, 0, 0], x[1, 0, 0, 1] = INF, -INF
    bias, other = torch.randn(columns), torch.randn(2, 17, 9, columns)
    bias[7], other[0, 0, 0, 3], other[0, 0, 1, 8] = INF, NAN, -INF
    expected = exact(x, weight, bias, other)
    for low, high in ((-INF, INF), (0.0, INF), (-1.0, 6.0)):
        wanted = expected.clip(low, high)
        y = run(library, x, weight, bias, other, low=low, high=high)
        torch.testing.assert_close(y.double(), wanted.float().double(), equal_nan=True, rtol=1e-6, atol=4e-6)
    y = run(library, x, weight, bias, other, swish=True)
    wanted = functional.silu(expected.float())
    torch.testing.assert_close(y, wanted, equal_nan=True, rtol=2e-6, atol=4e-6)
    assert wanted.isnan().any()
    assert wanted.isinf().any()


def test_no_rows(library: ctypes.CDLL):
    assert run(library, torch.empty(0, 3, 3, 8), torch.randn(5, 8)).shape == (0, 3, 3, 5)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(300, 1100, 70), (5000, 20, 130)])
def test_large_operands_in_several_chunks(library: ctypes.CDLL, rows: int, depth: int, columns: int):
    torch.manual_seed(0)
    x, weight = torch.randn(1, rows, 1, depth), torch.randn(columns, depth) / depth**0.5
    y = run(library, x, weight)
    torch.testing.assert_close(y.double(), exact(x, weight, None, None), rtol=1e-6, atol=2e-5)


@pytest.mark.parametrize(
    ("image", "depth", "columns"), [((2, 15, 14), 96, 152), ((1, 1, 1), 300, 100)], ids=["rows", "columns"]
)
def test_numbers_do_not_depend_on_threads(
    library: ctypes.CDLL, image: tuple[int, int, int], depth: int, columns: int
):
    """Whether rows are divided among threads, or the columns of one row."""
    torch.manual_seed(0)
    x, weight, before = torch.randn(*image, depth), torch.randn(columns, depth), torch.get_num_threads()
    found: list[torch.Tensor] = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(run(library, x, weight))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
