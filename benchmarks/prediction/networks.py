"""Networks whose operators are measured one by one: an MLP, a convolutional one, an LSTM step by step.

Batches are of 64 to 256, so that most operators take 0.1 ms and more. In a network, each also waits for code
that others have pushed out of the caches (some 30 us where a step touches 8 MB), which copies in a chain
find; and Python works between modules. `FURTHER` has the same networks where that is a large part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

Network = Callable[[], tuple[nn.Module, torch.Tensor]]


class UnrolledLstm(nn.Module):
    """An LSTM as its operators: `nn.LSTM` is one call into a library."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.from_input = nn.Linear(size, 4 * size)
        self.from_hidden = nn.Linear(size, 4 * size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = cell = x.new_zeros(x.shape[1], self.size)
        for one in x.unbind(0):
            gates = self.from_input(one) + self.from_hidden(hidden)
            put, keep, new, out = gates.chunk(4, 1)
            cell = torch.sigmoid(keep) * cell + torch.sigmoid(put) * torch.tanh(new)
            hidden = torch.sigmoid(out) * torch.tanh(cell)
        return hidden


def mlp(batch: int = 256) -> tuple[nn.Module, torch.Tensor]:
    layers = nn.Sequential(
        nn.Linear(256, 512),
        nn.ReLU(),
        nn.LayerNorm(512),
        nn.Linear(512, 256),
        nn.GELU(),
        nn.Linear(256, 128),
        nn.Tanh(),
        nn.Linear(128, 10),
        nn.Softmax(-1),
    )
    return layers, torch.randn(batch, 256)


def wide_mlp() -> tuple[nn.Module, torch.Tensor]:
    """Weights of 2 MB each come from beyond a core's own caches, whose speed others have a part in."""
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)), torch.randn(64, 512)


def convolutional(batch: int = 64) -> tuple[nn.Module, torch.Tensor]:
    layers = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.Hardtanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
        nn.LogSoftmax(-1),
    )
    return layers, torch.randn(batch, 3, 32, 32)


def lstm(batch: int = 64, size: int = 256) -> tuple[nn.Module, torch.Tensor]:
    return UnrolledLstm(size), torch.randn(8, batch, size)


NETWORKS: dict[str, Network] = {"MLP": mlp, "convolutional": convolutional, "LSTM": lstm}
FURTHER: dict[str, Network] = {
    "wide MLP": wide_mlp,
    "convolutional, batch of 8": partial(convolutional, 8),
    "LSTM, batch of 32": partial(lstm, 32),
    "LSTM of 32, batch of 4": partial(lstm, 4, 32),
}
