"""Loops that do not need each other, in one kernel of a device."""

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
from daceml.sdfg.scopes import top_maps
from daceml.transformations.standard import device_recipe
from tests.support.sampling import sampled

Function = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


class Of(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.function(x)


class Tables(nn.Module):
    """Lookups as a recommender has them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 12) for rows in (3, 50, 7, 21, 5))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        found = [table(indices[:, n]) for n, table in enumerate(self.tables)]
        return torch.stack(found, 1).relu() @ torch.ones(12, 2)


def halves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Two results that do not need each other, of different arguments."""
    a, b = x @ torch.ones(x.shape[-1], 6), x @ torch.full((x.shape[-1], 6), 2.0)
    return torch.sin(a), torch.tanh(b)


def chain(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The second one needs the first."""
    a = torch.sin(x @ torch.ones(x.shape[-1], 6))
    return a, torch.tanh(a @ torch.ones(6, 6))


def across(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Equal boxes, but one goes through its memory the other way."""
    a, b = x @ torch.ones(x.shape[-1], 6), x @ torch.full((x.shape[-1], 6), 2.0)
    return torch.sin(a), torch.tanh(b.flip(1))


def kernels(module: nn.Module, x: torch.Tensor) -> int:
    """Loops that compute, other than constants."""
    network = onnx_network(export_program(module, (x,)), Stages())
    found = top_maps(optimise(network, Stages(), recipe=device_recipe()).network.state)
    return sum(entry.map.label not in ("ConstantOfShape", "Concat") for entry in found)


@pytest.mark.parametrize("function", sampled([halves, chain, across], chain, across))
def test_values_are_those_of_eager(function: Function):
    x = torch.randn(37, 5)
    found = daceml.compile(Of(function), recipe=device_recipe(), backward=False)(x)
    for one, expected in zip(found, function(x), strict=True):
        torch.testing.assert_close(one, expected)


@pytest.mark.parametrize(
    ("function", "rows", "count"),
    [
        pytest.param(halves, 37, 1, id="independent and alike"),
        pytest.param(chain, 37, 2, id="one needs the other"),
        pytest.param(halves, 2**20, 2, id="large"),
        pytest.param(across, 37, 2, id="across memory"),
    ],
)
def test_what_shares_a_launch(function: Function, rows: int, count: int):
    assert kernels(Of(function), torch.randn(rows, 5)) == count


def test_lookups_are_one_launch():
    module, x = Tables(), torch.randint(0, 3, (33, 5))
    assert kernels(module, x) == 3, "all positions, which are checked, all lookups, and what is made of them"
    found = daceml.compile(module, recipe=device_recipe(), backward=False)(x)
    torch.testing.assert_close(found, module(x))
