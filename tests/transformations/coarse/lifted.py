"""Modules whose spelled-out operators are lifted: what their networks become, and torch's numbers."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import daceml
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.capture import capture
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.transformations.recipe import Recipe
from daceml.transformations.standard import operator_recipe


class Of(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def lifted(module: nn.Module, *inputs: torch.Tensor, recipe: Recipe | None = None) -> Network:
    """The network of a module after the passes in front of differentiation, the standard ones by default."""
    network = onnx_network(capture(module, Arguments(inputs, {})).program, Stages())
    (recipe or operator_recipe(training=True))(network)
    network.sdfg.validate()
    return network


def operators(network: Network) -> dict[str, int]:
    """How many there are of each operator."""
    return dict(Counter(n.op_type for n in network.state.nodes() if isinstance(n, ONNXNode)))


def reasons(network: Network, name: str) -> list[str]:
    """Why a pass left something as it was."""
    return [r.reason for record in network.passes if record.name == name for r in record.refused]


def step(module: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Results of a module, then gradients of a sum of them that weighs every element differently."""
    given = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
    found = module(*given)
    results = list(found) if isinstance(found, tuple) else [found]
    weighed = [(r * torch.linspace(-1, 2, r.numel(), dtype=r.dtype).reshape(r.shape)).sum() for r in results]
    torch.stack(weighed).sum().backward()
    parameters = list(module.parameters())
    return [*results, *(t.grad for t in (*given, *parameters) if t.grad is not None)]


def equals_eager(module: nn.Module, *inputs: torch.Tensor, rtol: float = 1e-12) -> None:
    """Results and gradients of a compiled module are eager's, NaN and infinity where eager has them.

    Args:
        rtol: against the largest finite element; in float64 a few hundred roundings.
    """
    expected = step(copy.deepcopy(module), *inputs)
    actual = step(daceml.compile(module), *inputs)
    for ours, theirs in zip(actual, expected, strict=True):
        largest = theirs[theirs.isfinite()].abs().max().item() if theirs.isfinite().any() else 0.0
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol * largest, equal_nan=True)
