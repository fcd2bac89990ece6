"""sum_columns: where it applies, that values stay, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import daceml
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.onnx_export.export import export_program
from daceml.sdfg.passes import PassRecord
from tests.support.sampling import sampled


class Apply(nn.Module):
    def __init__(self, *functions: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(x) for function in self.functions)


def record(function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> PassRecord:
    with torch.no_grad():
        network = onnx_network(export_program(Apply(function), (torch.ones(shape),)), Stages())
        passes = optimise(network, Stages()).network.passes
    return next(p for p in passes if p.name == "sum_columns")


FUNCTIONS = (
    lambda x: x.sum(0),
    lambda x: (x * x).mean(1).sqrt(),
    lambda x: x.sum((0, 1)) * 2,
    lambda x: x.var(0),
    lambda x: (x - x.mean(1, keepdim=True)).exp().sum(1),
)


SHAPES = [(40, 33, 70), (17, 16, 1), (16, 20, 5), (3, 64, 128)]


@pytest.mark.parametrize("shape", sampled([(s,) for s in SHAPES], ((40, 33, 70),), ((17, 16, 1),)))
def test_sums_of_columns_are_those_of_torch(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    module = Apply(*FUNCTIONS)
    with torch.no_grad():
        for ours, eager in zip(daceml.compile(module)(x), module(x), strict=True):
            # sums of at most 1,320 float64 numbers around 1, and their exponentials
            torch.testing.assert_close(ours, eager, rtol=1e-12, atol=1e-12)


def test_it_applies_to_sums_over_leading_dimensions_only() -> None:
    assert record(lambda x: x.sum(0), 64, 48).applied == {"sum_columns": 1}
    assert not record(lambda x: x.sum(1), 64, 48).applied, "rows lie in memory as they are summed"
    assert not record(lambda x: x.sum(0), 8, 48).applied, "eight rows are few"
    assert not record(lambda x: x.amax(0), 64, 48).applied, "a maximum is no sum"
    assert not record(lambda x: x.flip(1).sum(), 64, 48).applied, "one sum has no columns"
