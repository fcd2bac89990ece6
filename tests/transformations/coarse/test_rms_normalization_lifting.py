"""Root-mean-square normalization as users spell it becomes one operator, with eager's numbers."""

from __future__ import annotations

import math

import torch
from torch import nn

from daceml.transformations.coarse.rms_normalization_lifting import NAME
from tests.support.golden import golden
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons


class Llama(nn.Module):
    """As in language models: computed in float32, whatever the tensor's type."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 2, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * normal.to(x.dtype)


def quotient(x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean((1, 2), keepdim=True) + 1e-8)


def test_every_form_is_found_and_has_eagers_numbers_and_gradients():
    x = torch.randn(3, 4, 5, dtype=torch.float64) * 2 - 1
    assert operators(lifted(Llama(5).double(), x)) == {"RMSNormalization": 1}
    assert operators(lifted(Of(quotient), x)) == {"RMSNormalization": 1}
    equals_eager(Llama(5).double(), x, rtol=1e-11)
    equals_eager(Of(quotient), x, rtol=1e-11)


def test_a_half_type_is_normalized_in_float32():
    network = lifted(Llama(5), torch.randn(3, 5, dtype=torch.bfloat16))
    assert operators(network)["RMSNormalization"] == 1
    # the scale stands behind the cast
    assert operators(network)["Mul"] == 1


def test_edges_are_eagers():
    rows = [[0.0] * 5, [1.0] * 5, [math.inf, 1, 2, 3, 4], [math.nan, 1, 2, 3, 4], [1e18, -1e18, 0, 3, 1]]
    rows += [[-math.inf, math.inf, 0, 1, 2], [1e-20, 2e-20, 0, 0, 1e-21], [1.0, 2, 3, 4, 5]]
    equals_eager(Llama(5), torch.tensor(rows), rtol=2e-6)


def test_refusals():
    def middle(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)

    (reason,) = reasons(lifted(Of(middle), torch.randn(2, 3, 4)), NAME)
    assert reason == golden()
    assert "dimensions [1] of 3" in reason
    half = torch.randn(2, 3, 4, dtype=torch.float16)
    (reason,) = reasons(lifted(Of(quotient), half), NAME)
    assert reason == golden()
    assert "float16" in reason

    def learned(x: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + e)

    network = lifted(Of(learned), torch.randn(2, 3), torch.rand(1))
    (reason,) = reasons(network, NAME)
    assert reason == golden()
    assert "constant" in reason
