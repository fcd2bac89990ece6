"""Networks for kernels of a device: two blocks and two warps of threads or more, and ragged tails of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models.bert import bert_layer
from benchmarks.models.mbconv import MBConv1
from benchmarks.models.mish import Mish
from daceml.codegen_cuda.kernel_unit import KernelUnit, kernel_unit
from daceml.compiler.pipeline import training_networks
from daceml.frontend.onnx_export.export import export_program
from daceml.runtime.records.gradients import Wanted
from daceml.sdfg.network import Network
from daceml.sdfg.outline import Outliner
from daceml.sdfg.scopes import top_maps
from daceml.transformations.standard import device_recipe


class BiasGelu(nn.Module):
    """GELU of a bias added to a linear layer's result."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x + self.bias)


class ScaledMaskedSoftmax(nn.Module):
    """Softmax of scaled scores with an additive mask of the keys; the first query sees one key only."""

    def __init__(self, keys: int) -> None:
        super().__init__()
        mask = torch.where(torch.rand(keys, keys) < 0.1, -10000.0, 0.0)
        mask[0, 1:] = float("-inf")
        mask[:, 0] = 0.0
        self.register_buffer("mask", mask)

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores * 0.125 + self.get_buffer("mask"), dim=-1)


class NormReluResidual(nn.Module):
    """The end of a residual block: batch norm, sum, relu."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(x) + residual)


class DropoutResidualNorm(nn.Module):
    """The end of a transformer's layer: dropout, sum, layer norm."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(self.dropout(x) + residual)


class BasicBlock(nn.Module):
    """A residual block of ResNet-18 (He et al., CVPR 2016): two convolutions of 3 x 3 and a skip."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + x)


def bert() -> nn.Module:
    """A layer of BERT without dropout."""
    return without_dropout(bert_layer(hidden=72, heads=2))


def without_dropout(module: nn.Module) -> nn.Module:
    """The module with every dropout at 0, in place."""
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            child.p = 0.0
    return module


@dataclass(frozen=True, kw_only=True)
class Case:
    """A module, and shapes of its inputs."""

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]


_IMAGES = (4, 6, 9, 11)
_ROWS = (203, 70)

BLOCKS: dict[str, Case] = {
    "mish": Case(build=Mish, shapes=((3, 5, 137),)),
    "silu": Case(build=nn.SiLU, shapes=((3, 5, 137),)),
    "bias and gelu": Case(build=lambda: BiasGelu(70), shapes=(_ROWS,)),
    "layer norm": Case(build=lambda: nn.LayerNorm(70), shapes=(_ROWS,)),
    "layer norm of long rows": Case(build=lambda: nn.LayerNorm(1101), shapes=((5, 1101),)),
    "softmax": Case(build=lambda: ScaledMaskedSoftmax(67), shapes=((2, 3, 67, 67),)),
    "batch norm": Case(build=lambda: NormReluResidual(6), shapes=(_IMAGES, _IMAGES)),
    "dropout and layer norm": Case(build=lambda: DropoutResidualNorm(70), shapes=(_ROWS, _ROWS)),
    "bert": Case(build=bert, shapes=((5, 37, 72),)),
    "mbconv": Case(build=lambda: MBConv1(channels_in=8, channels_out=6), shapes=((4, 8, 9, 11),)),
    "basic block": Case(build=lambda: BasicBlock(6), shapes=(_IMAGES,)),
}


def forward_and_backward(case: Case, dtype: torch.dtype = torch.float32) -> list[Network]:
    """Both networks of a training step, for a device."""
    torch.manual_seed(0)
    module, inputs = case.build().to(dtype), tuple(torch.randn(shape).to(dtype) for shape in case.shapes)
    wanted = Wanted(inputs=(True,) * len(inputs), state=tuple(dict(module.named_parameters())))
    done, _ = training_networks(export_program(module, inputs), wanted, recipe=device_recipe())
    return [part.network for part in done]


def kernel_units(case: Case, dtype: torch.dtype = torch.float32) -> list[KernelUnit]:
    """Device code of all kernels of a training step."""
    outliner = Outliner()
    for network in forward_and_backward(case, dtype):
        for entry in top_maps(network.state):
            outliner.outline(network.sdfg, network.state, entry)
    return [kernel_unit(kernel) for kernel in outliner.kernels.values()]
