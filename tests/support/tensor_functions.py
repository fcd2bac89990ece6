"""Functions of tensors as modules, and as networks after all levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from daceml.frontend.export import export_program
from daceml.frontend.pipeline import Stages, onnx_network, optimise
from daceml.sdfg.network import Network
from daceml.transformations.recipe import Recipe

Function = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]


class Apply(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return self.function(*inputs)


class Joint(nn.Module):
    """Several functions as one program: each has inputs of its own, equally many, and results by its name."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor | tuple[torch.Tensor, ...]]:
        count = len(inputs) // len(self.functions)
        return {
            name: function(*inputs[i * count : (i + 1) * count])
            for i, (name, function) in enumerate(self.functions.items())
        }

    def copies(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Inputs of all functions, from those of one."""
        return [x.clone() for _ in self.functions for x in inputs]


def optimised(function: Function, *shapes: tuple[int, ...], recipe: Recipe | None = None) -> Network:
    with torch.no_grad():
        example = tuple(torch.ones(shape) for shape in shapes)
        network = onnx_network(export_program(Apply(function), example), Stages())
        return optimise(network, Stages(), recipe=recipe).network
