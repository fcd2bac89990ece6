"""Mish as users spell it becomes one operator, with eager's numbers."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from daceml.transformations.coarse.mish_lifting import NAME, lift_mish
from tests.support.golden import golden
from tests.support.imported_networks import imported
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons


def mish(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(functional.softplus(x)) * x


def test_it_is_found_and_has_eagers_numbers_and_gradients():
    x = torch.randn(3, 1, 5)
    assert operators(lifted(Of(mish), x)) == {"Mish": 1}
    edges = torch.tensor([0.0, -0.0, 19.9, 20.1, -90.0, 1e30, -1e30, math.inf, -math.inf, math.nan])
    # an ulp of each of both sides
    equals_eager(Of(mish), torch.cat([x.flatten(), edges]), rtol=4e-7)


def test_another_tensor_is_no_mish_and_half_types_stay():
    def other(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(functional.softplus(y))

    assert "Mish" not in operators(lifted(Of(other), torch.randn(3, 1), torch.randn(1, 4)))
    half = imported("g (bfloat16[5] X) => (bfloat16[5] Y) { S = Softplus (X) T = Tanh (S) Y = Mul (X, T) }")
    assert lift_mish(half) == 0
    (reason,) = reasons(half, NAME)
    assert reason == golden()
    assert "bfloat16" in reason


def test_a_logarithm_of_an_exponential_stays():
    """Where exp overflows, torch's gradient is NaN, and so is ours."""

    def overflowing(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(torch.log(1 + torch.exp(x)))

    network = lifted(Of(overflowing), torch.randn(4))
    assert "Mish" not in operators(network) and reasons(network, NAME) == []
    equals_eager(Of(overflowing), torch.tensor([0.5, -3.0, 800.0], dtype=torch.float64))
