"""Functions of tensors as modules, and as networks after all levels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.onnx_export.export import export_program
from daceml.sdfg.network import Network
from daceml.transformations.recipe import Recipe

Function = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]


class Apply(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return self.function(*inputs)


def optimised(function: Function, *shapes: tuple[int, ...], recipe: Recipe | None = None) -> Network:
    with torch.no_grad():
        example = tuple(torch.ones(shape) for shape in shapes)
        network = onnx_network(export_program(Apply(function), example), Stages())
        return optimise(network, Stages(), recipe=recipe).network
