"""write_out_reductions: every bit stays, NaN and infinities too, and what is left alone says why."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.onnx_export.export import export_program
from daceml.sdfg.passes import PassRecord
from daceml.transformations.standard import standard_recipe
from tests.support.golden import golden
from tests.support.sampling import sampled


class Apply(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def record(function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> PassRecord:
    with torch.no_grad():
        network = onnx_network(export_program(Apply(function), (torch.ones(shape),)), Stages())
        passes = optimise(network, Stages()).network.passes
    return next(p for p in passes if p.name == "write_out_reductions")


def special(*shape: int) -> torch.Tensor:
    """Normal numbers with NaN, infinities, both zeros and a denormal among them."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    numbers = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40])
    at = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(4))[: x.numel() // 4]
    x.view(-1)[at] = numbers.repeat(len(at) // 6 + 1)[: len(at)]
    return x


MAXIMA = {
    "3 by 3, stride 2": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "2 by 2": lambda x: functional.max_pool2d(x, 2),
    "2 by 3, dilated": lambda x: functional.max_pool2d(x, (2, 3), (1, 2), dilation=(3, 1)),
    "ceil": lambda x: functional.max_pool2d(x, 3, 2, ceil_mode=True),
}


@pytest.mark.parametrize(
    ("shape", "name"),
    sampled(
        itertools.product([(2, 5, 11, 9), (1, 3, 8, 33)], MAXIMA),
        *(((2, 5, 11, 9), name) for name in MAXIMA),
        ((1, 3, 8, 33), "3 by 3, stride 2"),
    ),
)
def test_extrema_have_every_bit_of_torch(shape: tuple[int, ...], name: str) -> None:
    x, module = special(*shape), Apply(MAXIMA[name])
    assert record(MAXIMA[name], *shape).applied
    with torch.no_grad():
        torch.testing.assert_close(daceml.compile(module)(x), module(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_are_added_in_the_same_order(dtype: torch.dtype) -> None:
    def pool(x: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(x, 3, 1, 1)

    x, module = special(2, 3, 10, 12).to(dtype), Apply(pool)
    whole = standard_recipe()
    without = standard_recipe().without("write_out_reductions")
    with torch.no_grad():
        written_out = daceml.compile(module, recipe=whole)(x)
        looped = daceml.compile(module, recipe=without)(x)
    assert torch.equal(written_out.view(torch.uint8), looped.view(torch.uint8))
    torch.testing.assert_close(written_out, module(x), equal_nan=True)


def test_what_stays_says_why() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        return x.amax(1)

    (refusal,) = record(long, 8, 40, 20).refused
    assert refusal.reason == golden()
    assert "40 elements" in refusal.reason and "16" in refusal.reason

    def conditional(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, 2 * x).amax(1)

    found = record(conditional, 8, 5, 20)
    assert not found.applied
    assert [r.reason for r in found.refused] == [golden()]
    assert "conditions" in found.refused[0].reason
