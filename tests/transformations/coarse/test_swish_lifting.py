"""Swish, of which SiLU is one, becomes one operator, with eager's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import daceml
from daceml.transformations.coarse.swish_lifting import NAME
from tests.support.golden import golden
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons


def swishes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return functional.silu(x), x * torch.sigmoid(1.702 * x), torch.sigmoid(x * -0.3) * x


def test_every_form_is_found_and_has_eagers_numbers_and_gradients():
    x = torch.randn(3, 1, 7, dtype=torch.float64)
    assert operators(lifted(Of(swishes), x)) == {"Swish": 3}
    equals_eager(Of(swishes), x)


def test_edges_are_eagers():
    edges = [0.0, -0.0, 30.0, -30.0, 90.0, -90.0, 1e30, -1e30, 1e-30, math.inf, -math.inf, math.nan]
    # an ulp of each of both sides
    equals_eager(Of(swishes), torch.tensor(edges), rtol=4e-7)


def test_a_gate_is_no_swish():
    def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(y)

    network = lifted(Of(gate), torch.randn(2, 3, 1), torch.randn(1, 3, 4))
    assert operators(network) == {"Sigmoid": 1, "Mul": 1}
    equals_eager(Of(gate), torch.randn(2, 3, 1).double(), torch.randn(1, 3, 4).double())


def test_refusals():
    half = lifted(Of(lambda x: x * torch.sigmoid(x)), torch.randn(3, dtype=torch.float16))
    (reason,) = reasons(half, NAME)
    assert reason == golden()
    assert "float16" in reason
    learned = lifted(Of(lambda x, a: x * torch.sigmoid(x * a)), torch.randn(3), torch.randn(1))
    (reason,) = reasons(learned, NAME)
    assert reason == golden()
    assert "tensors_1" in reason


def _normal(x: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + epsilon)


@pytest.mark.parametrize(
    "written",
    [
        lambda x: x * torch.sigmoid(x * torch.full((1, 1, 1), 1.702, dtype=x.dtype)),
        lambda x: x * torch.full((1, 1, 1), 0.5, dtype=x.dtype) * (1 + torch.erf(x / 2**0.5)),
        lambda x: _normal(x, torch.full((1, 1, 1), 1e-5, dtype=x.dtype)),
        lambda x: x / torch.sqrt((x**2).mean(-1, keepdim=True) + torch.full((1, 1, 1), 1e-5, dtype=x.dtype)),
    ],
    ids=["swish", "gelu", "layer norm", "RMS norm"],
)
def test_a_constant_of_more_dimensions_makes_another_shape(written: Callable[[torch.Tensor], torch.Tensor]):
    """The result of none of these has the shape of x, so none of them is the operator."""
    module = Of(written)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    expected, result = module(x), daceml.compile(module)(x)
    assert result.shape == (1, 3, 4)
    torch.testing.assert_close(result, expected)
    (mine,), (theirs,) = (torch.autograd.grad(y.square().sum(), x) for y in (result, expected))
    torch.testing.assert_close(mine, theirs)
