"""The blocks: modules, sizes above the last cache, and the least that each has to move and to compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models.mish import Mish
from benchmarks.models.spec import Inputs, ModelSpec

ROWS, COLUMNS = 16384, 1024
CHANNELS, SIDE = 64, 112
_IMAGES = (21, CHANNELS, SIDE, SIDE)
_SCORES = (8, 8, 512, 512)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block and its floor.

    Attributes:
        spec: module and inputs.
        train_mode: its forward pass is measured in train mode.
        elements: of one of its large tensors.
        forward_tensors, step_tensors: how many large tensors forward, and forward with backward, have to
            read or write at least.
        forward_exponentials, step_exponentials: special functions for each element at least.
    """

    spec: ModelSpec
    train_mode: bool = False
    elements: int
    forward_tensors: int
    step_tensors: int
    forward_exponentials: int = 0
    step_exponentials: int = 0


class Silu(nn.Module):
    """x * sigmoid(x)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(x)


class BiasGelu(nn.Module):
    """GELU of a linear layer's bias added to its result."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(COLUMNS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x + self.bias)


class ScaledMaskedSoftmax(nn.Module):
    """Attention's weights: softmax of scaled scores with an additive mask of the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.where(torch.rand(1, 1, 1, _SCORES[-1]) < 0.1, -10000.0, 0.0))

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores * 0.125 + self.get_buffer("mask"), dim=-1)


class NormReluResidual(nn.Module):
    """The end of a residual block: batch norm, sum, relu."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(x) + residual)


class DropoutResidualNorm(nn.Module):
    """The end of a transformer's layer: dropout, sum, layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(COLUMNS)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(self.dropout(x) + residual)


def _normal(*shapes: tuple[int, ...]) -> Inputs:
    """Normal tensors; `batch` is another first size."""

    def made(
        generator: torch.Generator, dtype: torch.dtype, batch: int | None = None
    ) -> tuple[torch.Tensor, ...]:
        sized = [(shape[0] if batch is None else batch, *shape[1:]) for shape in shapes]
        # drawn in float32 and then converted, so that float64 runs see exactly the float32 numbers
        return tuple(
            torch.randn(shape, generator=generator, device=generator.device).to(dtype) for shape in sized
        )

    return made


_ROWS = (ROWS, COLUMNS)


def _spec(
    name: str, build: Callable[[], nn.Module], shapes: tuple[tuple[int, ...], ...], depth: int
) -> ModelSpec:
    return ModelSpec(name=name, build=build, inputs=_normal(*shapes), depth=depth, source=__name__)


_block = partial(Block, elements=ROWS * COLUMNS)

BLOCKS: dict[str, Block] = {
    block.spec.name: block
    for block in (
        # forward: x, y; step: x, y, and dy, x, dx
        _block(
            spec=_spec("mish", Mish, (_ROWS,), 3), forward_tensors=2, step_tensors=5,
            forward_exponentials=1, step_exponentials=2,
        ),
        _block(
            spec=_spec("silu", Silu, (_ROWS,), 2), forward_tensors=2, step_tensors=5,
            forward_exponentials=1, step_exponentials=2,
        ),
        _block(
            spec=_spec("bias_gelu", BiasGelu, (_ROWS,), 3), forward_tensors=2, step_tensors=5,
            forward_exponentials=1, step_exponentials=3,
        ),
        _block(
            spec=_spec("layer_norm", partial(nn.LayerNorm, COLUMNS), (_ROWS,), 5),
            forward_tensors=2, step_tensors=5,
        ),
        _block(
            spec=_spec("softmax", ScaledMaskedSoftmax, (_SCORES,), 4), forward_tensors=2, step_tensors=5,
            forward_exponentials=1, step_exponentials=1,
        ),
        # forward: x, residual, y; step: and dy, y, x, dx, dresidual. What a channel needs twice may stay in a
        # cache
        _block(
            spec=_spec("batch_norm", NormReluResidual, (_IMAGES, _IMAGES), 6), train_mode=True,
            elements=_IMAGES[0] * CHANNELS * SIDE * SIDE, forward_tensors=3, step_tensors=8,
        ),
        # forward: x, residual, y; step: and dy, x, residual, dx, dresidual, with a mask that is drawn again
        _block(
            spec=_spec("dropout_layer_norm", DropoutResidualNorm, (_ROWS, _ROWS), 6), train_mode=True,
            forward_tensors=3, step_tensors=8,
        ),
    )
}  # fmt: skip


def spec_of(name: str) -> ModelSpec:
    """The network of a block."""
    return BLOCKS[name].spec
