"""Device code of modules that become one kernel."""

from __future__ import annotations

import torch
from torch import nn

from daceml.codegen_cuda.kernel_unit import KernelUnit, kernel_unit
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.sdfg.outline import Outliner
from daceml.sdfg.scopes import top_maps
from daceml.transformations.standard import device_recipe


class Scores(nn.Module):
    """An elementwise function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3


def unit_of(module: nn.Module, x: torch.Tensor, *, open_rows: bool = False) -> KernelUnit:
    """The one kernel of a module."""
    shapes = ({0: torch.export.Dim("rows")},) if open_rows else None
    network = onnx_network(torch.export.export(module, (x,), dynamic_shapes=shapes), Stages())
    network = optimise(network, Stages(), recipe=device_recipe()).network
    (entry,) = top_maps(network.state)
    return kernel_unit(Outliner().outline(network.sdfg, network.state, entry).kernel)
