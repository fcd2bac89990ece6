"""Kernels whose blocks go round: any grid gives what one block for all, or a thread for each point, gives.

The emulated device has 1,024 threads at once (`daceml/emulation/language.h`), so a grid of 4 blocks of 256
goes through 65,537 vectors 65 times; rows of a warp are 32 at a time, and long rows 2.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import daceml
from daceml.codegen_cuda.block_size import BlockShape, with_shape
from daceml.codegen_cuda.emulation.emulator import Order
from daceml.errors import ExecutionError
from daceml.transformations.standard import device_recipe
from tests.codegen_cuda.emulation.units import emulated
from tests.codegen_cuda.kernel_units import unit_of
from tests.support.golden import raises
from tests.support.tensor_functions import Apply

NEVER_CUT = 65536


class Bias(nn.Module):
    """Columns that repeat, so that a point is a quotient and a rest."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 - self.bias


def exact(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """In float64, rounded once."""
    return module.double()(x.double()).to(x.dtype)


def open_rows(module: nn.Module) -> nn.Module:
    return daceml.compile(module, recipe=device_recipe(), backward=False, dynamic_shapes=({0: "rows"},))


@pytest.mark.parametrize("count", [4 * NEVER_CUT - 1, 4 * NEVER_CUT, 4 * NEVER_CUT + 1, 4 * NEVER_CUT + 1027])
def test_points_around_the_size_from_which_they_go_round(count: int):
    module = Apply(lambda x: x * 2 + 1)
    ours = daceml.compile(module, recipe=device_recipe(), backward=False)
    x = torch.randn(count)
    torch.testing.assert_close(ours(x), exact(module, x), rtol=2e-7, atol=2e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_points_of_open_sizes(dtype: torch.dtype):
    """One program for fewer points than one block has, for just as many as fit, for more, and for none."""
    module = Bias(7).to(dtype)
    ours = open_rows(module)
    for rows in (36, 1, 146, 147, 293, 1000, 0):
        x = torch.randn(rows, 7).to(dtype)
        expected = module(x)
        found = ours(x)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("columns", [70, 1101])
def test_rows_of_open_number(columns: int):
    """Rows of a warp, 32 of them at once, and rows of a block, two of them at once."""
    module = nn.Softmax(-1)
    ours = open_rows(module)
    for rows in (5, 1, 2, 3, 31, 32, 33, 70, 0):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(ours(x), exact(module, x), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("order", list(Order))
def test_neither_order_nor_number_of_blocks_matters(order: Order):
    """Long rows use shared memory again in the next round: the emulation tells of a missing barrier."""
    unit = unit_of(nn.Softmax(-1), torch.randn(9, 1101), open_rows=True)
    assert "blocks_at_once" in unit.text
    x = np.random.default_rng(0).normal(size=(9, 1101)).astype(np.float32)
    results = []
    for blocks in ("1", "2", "4", "9", "40"):
        text = unit.text.replace("daceml::blocks_at_once(", f"std::int64_t({blocks}); (void)(", 1)
        made = emulated(text)
        results.append(made.run(unit.launch, x, np.empty_like(x), 9, order=order, seed=3)[1])
    expected = torch.softmax(torch.from_numpy(x).double(), -1).numpy()
    np.testing.assert_allclose(results[0], expected, rtol=2e-6)
    assert all(np.array_equal(one, results[0]) for one in results)


@pytest.mark.parametrize("threads", [128, 256, 512])
def test_blocks_of_points_have_any_size(threads: int):
    """What is chosen on a device by registers: more points than go at once, and a ragged tail."""
    rows = 4 * NEVER_CUT // 7 + 3
    module = Bias(7)
    unit = unit_of(module, torch.randn(rows, 7))
    text = with_shape(unit.text, BlockShape(threads=threads))
    assert f"_threads = {threads}," in text
    x = np.random.default_rng(0).normal(size=(rows, 7)).astype(np.float32)
    bias = module.bias.detach().numpy()
    found = emulated(text).run(unit.launch, x, bias, np.zeros_like(x))[-1]
    np.testing.assert_allclose(found, x * 2 - bias, rtol=1e-6, atol=1e-6)


def test_a_round_that_forgets_a_barrier_is_told():
    text = """\
#include <daceml/device.h>
__global__ void rows(const float* x, float* y, int n) {
    DACEML_SHARED(float, first, 1);
    for (int g = blockIdx.x; g < n; g += gridDim.x) {
        if (threadIdx.x == 0) first[0] = x[g * 64];
        __syncthreads();
        y[g * 64 + threadIdx.x] = first[0];
        BARRIER
    }
}
extern "C" int launch(void* stream, const float* x, float* y) {
    return DACEML_LAUNCH(rows, 2, 1, 1, 64, 1, 1, 0, stream, x, y, 5);
}
"""
    x = np.arange(320, dtype=np.float32)
    _, y = emulated(text.replace("BARRIER", "__syncthreads();")).run("launch", x, np.empty_like(x))
    assert np.array_equal(y, np.repeat(x[::64], 64))
    with raises(ExecutionError, "shared array first"):
        emulated(text.replace("BARRIER", "")).run("launch", x, np.empty_like(x))


def test_all_blocks_go_round_equally_often():
    text = """\
#include <daceml/device.h>
__global__ void none() {}
extern "C" int launch(void* stream, std::int64_t* of) {
    const std::int64_t wanted[] = {0, 1, 4, 5, 9, 1000, std::int64_t(1) << 40};
    for (int i = 0; i < 7; ++i) of[i] = daceml::blocks_at_once(wanted[i], 256);
    of[7] = daceml::blocks_at_once(5, 2048);
    return 0;
}
"""
    (found,) = emulated(text).run("launch", np.zeros(8, np.int64))
    # 5 blocks are two rounds of 3, 9 are three rounds of 3
    assert found.tolist() == [0, 1, 4, 3, 3, 4, 4, 1]
