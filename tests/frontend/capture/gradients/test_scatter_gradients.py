"""Scattered extremes and products are part of one program, with torch's gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import daceml
from tests.support.tensor_functions import Apply

Function = Callable[..., torch.Tensor]

INDEX = torch.tensor([0, 0, 1, 2, 2, 2, 5, 6, 6])


def rows(width: int = 4) -> torch.Tensor:
    """One position for each row."""
    return INDEX.view(-1, 1).expand(-1, width)


def numbers(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Few whole numbers, so that many are equal, and some are 0."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-2, 3, shape, generator=generator).to(dtype)


def gradients(call: Function, *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    result = call(*leaves)
    weights = torch.arange(1.0, 1 + result.numel(), dtype=result.dtype).view_as(result)
    return [result.detach(), *torch.autograd.grad(result, leaves, weights)]


def agree(function: Function, *inputs: torch.Tensor) -> None:
    compiled = daceml.compile(Apply(function), fullgraph=True)
    torch.testing.assert_close(gradients(compiled, *inputs), gradients(function, *inputs))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
def test_equal_elements_and_zeros_have_torchs_gradients(reduce: str, include_self: bool):
    def scattered(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return x.sin().scatter_reduce(0, rows(), u.sin(), reduce, include_self=include_self)

    agree(scattered, numbers(7, 4), numbers(9, 4))


def test_a_scatter_in_place_and_along_another_dimension():
    def scattered(u: torch.Tensor) -> torch.Tensor:
        found = u.new_zeros(4, 7)
        view = found[1:]
        view.scatter_reduce_(1, rows(3).t(), u * 2, reduce="amax", include_self=False)
        return found.exp() + found

    agree(scattered, numbers(3, 9))


def test_gradients_of_updates_alone_and_of_half_precision():
    start = torch.zeros(7, 4, dtype=torch.bfloat16)
    agree(lambda u: start.scatter_reduce(0, rows(), u, "amin"), numbers(9, 4, dtype=torch.bfloat16))


def test_a_program_of_symbolic_sizes():
    def pooled(u: torch.Tensor) -> torch.Tensor:
        index = torch.arange(u.shape[0]).div(2, rounding_mode="floor").view(-1, 1).expand_as(u)
        return torch.zeros_like(u).scatter_reduce(0, index, u, "amax", include_self=False)

    compiled = daceml.compile(Apply(pooled), dynamic=True, fullgraph=True)
    for count in (6, 9):
        u = numbers(count, 4)
        torch.testing.assert_close(gradients(compiled, u), gradients(pooled, u))
