"""Numbers of 16 bits: every one of them, and what floats are rounded to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.codegen_cuda.emulation.units import unit

KERNELS = r"""
#include <daceml/halves.h>
template <typename T>
__global__ void converted(const float* x, T* narrow, float* back, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) narrow[i] = T(x[i]);
    if (i < n) back[i] = narrow[i];
}
#define DACEML_TEST(T)                                                                          \
    extern "C" int launch_##T(void* stream, const float* x, dace::T* y, float* z, int64_t n) {  \
        return DACEML_LAUNCH(converted<dace::T>, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, x, y, z, n); \
    }
DACEML_TEST(float16)
DACEML_TEST(bfloat16)
"""


def floats(dtype: torch.dtype) -> torch.Tensor:
    """Every number of the type, what lies half way to its neighbours and beside that, and random bits."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    halves = torch.stack([every[:-1], every[1:]]).mean(0)
    beside = [torch.nextafter(halves, torch.full_like(halves, end)) for end in (-torch.inf, torch.inf)]
    bits = torch.randint(-(2**31), 2**31 - 1, (50_000,), generator=torch.Generator().manual_seed(0))
    return torch.cat([every, halves, *beside, bits.to(torch.int32).view(torch.float32)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_conversions_are_those_of_torch(dtype: torch.dtype):
    x = floats(dtype)
    name = f"launch_{str(dtype).removeprefix('torch.')}"
    zeros = np.zeros(len(x), np.uint16)
    _, _, back = unit(KERNELS).run(name, x.numpy(), zeros, np.zeros(len(x), np.float32), len(x))
    torch.testing.assert_close(torch.from_numpy(back), x.to(dtype).float(), rtol=0, atol=0, equal_nan=True)
    assert (np.signbit(back) == np.signbit(x.numpy()))[~np.isnan(x.numpy())].all()
