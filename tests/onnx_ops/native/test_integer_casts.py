"""Floating-point numbers cut to integers, alone and next to what reads the integers in one kernel."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.transformations.recipe import Recipe
from daceml.transformations.standard import device_recipe

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
READERS = (torch.float32, torch.float64, torch.float16, torch.bool)
WITHIN_INT32 = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.75,
    -1.75,
    127.5,
    -128.9,
    -129.0,
    255.9,
    300.0,
    -300.0,
    32767.5,
    -70000.0,
]
BEYOND = [2.0**31, -(2.0**31), 3e9, 2.0**32 + 5, 2.0**40 + 7, 2.0**63, 1e30, -1e30]
BEYOND += [float("inf"), float("-inf"), float("nan")]


class Cut(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        cut = [v.to(narrow) for v in (x, x * 1) for narrow in INTEGERS]
        return [*cut, *(v + 1 for v in cut), *(v.to(reader) for v in cut for reader in READERS)]


def equals_eager(x: torch.Tensor, recipe: Recipe | None = None) -> None:
    compiled = daceml.compile(Cut(), backward=False, **({} if recipe is None else {"recipe": recipe}))
    for found, expected in zip(compiled(x), Cut()(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert torch.equal(found.signbit(), expected.signbit())


@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_numbers_that_an_integer_does_not_hold_are_cut_as_in_eager(dtype: torch.dtype, strided: bool):
    """gcc takes float(int(x)) for trunc(x), where both come to stand in one loop."""
    x = torch.tensor(WITHIN_INT32 + BEYOND, dtype=torch.float64).to(dtype).repeat(3)
    equals_eager(torch.stack([x, x], dim=-1)[:, 0] if strided else x)


def test_kernels_of_a_device_cut_them_too():
    """In emulation, and within int32: beyond it, devices differ."""
    equals_eager(torch.tensor(WITHIN_INT32 * 3), device_recipe())
