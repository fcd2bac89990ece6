"""Training and inference steps that are recorded, predicted and run: networks, optimizers and batches."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.interleave import Step


class Perceptrons(nn.Module):
    """Residual perceptrons as users write them: norm, product, GELU, product, a scale, a sum.

    x: [N, width] -> [N, width]
    """

    class Block(nn.Module):
        """x + scale * down(gelu(up(norm(x))))"""

        def __init__(self, width: int, hidden: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up = nn.Linear(width, hidden)
            self.activation = nn.GELU()
            self.down = nn.Linear(hidden, width)
            self.scale = nn.Parameter(torch.full((width,), 0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.scale * self.down(self.activation(self.up(self.norm(x))))

    def __init__(self, *, blocks: int, width: int, hidden: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(self.Block(width, hidden) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Step:
    """Forward, backward and update."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def inference_step(model: nn.Module, x: torch.Tensor) -> Step:
    """Forward alone, without gradients."""

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


def adam(model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
    """Adam as one operator after the other, or as one operator for all weights."""
    if fused:
        return torch.optim.Adam(model.parameters(), fused=True)
    return torch.optim.Adam(model.parameters(), foreach=False)
