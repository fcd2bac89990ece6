"""WaveNet without conditioning: stacks of gated, dilated, causal convolutions."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec

LEVELS = 256
STACKS = 2
LAYERS = 10


class CausalConv1d(nn.Conv1d):
    """A convolution of width 2 that sees the present and one past sample; zeros stand before the first."""

    def __init__(self, channels_in: int, channels_out: int, *, dilation: int = 1) -> None:
        super().__init__(channels_in, channels_out, 2, dilation=dilation)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(functional.pad(input, (self.dilation[0], 0)))


class Layer(nn.Module):
    """tanh(filter) * sigmoid(gate), then one 1x1 convolution to the residual and one to the skips.

    x: [N, residual, T] -> ([N, residual, T], [N, skip, T])
    """

    def __init__(self, *, residual: int, dilated: int, skip: int, dilation: int) -> None:
        super().__init__()
        self.filter = CausalConv1d(residual, dilated, dilation=dilation)
        self.gate = CausalConv1d(residual, dilated, dilation=dilation)
        self.residual = nn.Conv1d(dilated, residual, 1)
        self.skip = nn.Conv1d(dilated, skip, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gated = torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x))
        return x + self.residual(gated), self.skip(gated)


class WaveNet(nn.Module):
    """x: [N, T] int64, mu-law levels -> [N, levels, T], logits of the next sample's level.

    The first causal convolution reads one-hot vectors; an embedding before it gives the same numbers as a 1x1
    convolution of them.
    """

    def __init__(
        self,
        *,
        stacks: int = STACKS,
        layers: int = LAYERS,
        residual: int = 32,
        dilated: int = 32,
        skip: int = 256,
        end: int = 256,
        levels: int = LEVELS,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(levels, residual)
        self.first = CausalConv1d(residual, residual)
        self.layers = nn.ModuleList(
            Layer(residual=residual, dilated=dilated, skip=skip, dilation=2**layer)
            for _ in range(stacks)
            for layer in range(layers)
        )
        self.end1 = nn.Conv1d(skip, end, 1)
        self.end2 = nn.Conv1d(end, levels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(self.embedding(x).transpose(1, 2))
        skips: list[torch.Tensor] = []
        for layer in self.layers:
            hidden, skip = layer(hidden)
            skips.append(skip)
        total = skips[0]
        for skip in skips[1:]:
            total = total + skip
        return self.end2(torch.relu(self.end1(torch.relu(total))))


WAVENET = ModelSpec(
    name="wavenet",
    build=WaveNet,
    inputs=shapes.classes(LEVELS, *shapes.WAVENET),
    # a layer's padded convolution, tanh, product, 1x1 convolution and sum
    depth=2 + STACKS * LAYERS * 5 + 6,
    source="van den Oord et al., WaveNet (2016), figure 4, dilations of section 2.1;"
    " 32 residual, 32 dilated, 256 skip and 256 end channels of vincentherrmann/pytorch-wavenet",
)
