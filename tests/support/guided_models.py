"""Models that the page's tests guide."""

from __future__ import annotations

import torch
from torch import nn

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network


class Chain(nn.Module):
    """Three loops in a row that can be one, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(x * 2) + 1)


class Words(nn.Module):
    """An embedding, whose inputs have a range."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.table(words) * 2)


def refuse(network: Network) -> None:
    """A pass that fails."""
    found = [n for n in network.state.nodes() if isinstance(n, ONNXNode)]
    raise ValueError(f"{len(found)} operators are too many")


refuse.level = "coarse"  # pyright: ignore[reportFunctionMemberAccess]


def refuse_large(network: Network) -> None:
    """A pass that fails for many rows."""
    rows = int(network.sdfg.arrays[network.inputs[0]].shape[0])
    if rows > 100:
        raise ValueError(f"{rows} rows are too many")


refuse_large.level = "coarse"  # pyright: ignore[reportFunctionMemberAccess]
