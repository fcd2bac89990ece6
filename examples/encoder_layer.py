"""One layer of BERT's encoder, as one would write it in PyTorch (Devlin et al., BERT, NAACL 2019)."""

from __future__ import annotations

import torch
from torch import nn


class LayerNormalization(nn.Module):
    """x: [..., W] -> [..., W], in the primitives that ONNX had when the paper was written."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        deviation = torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
        return centred / deviation * self.scale + self.bias


class EncoderLayer(nn.Module):
    """x: [N, S, W] -> [N, S, W]: attention, and a network of two layers, each with its residual and norm."""

    def __init__(self, width: int = 64, heads: int = 4, inner: int = 256) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.keys, self.values = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.expand, self.project = nn.Linear(width, inner), nn.Linear(inner, width)
        self.first, self.second = LayerNormalization(width), LayerNormalization(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x + self.out(self.attention(x)))
        return self.second(x + self.project(nn.functional.gelu(self.expand(x))))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Every position's mixture of values, head by head."""
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (f(x).view(shape).transpose(1, 2) for f in (self.queries, self.keys, self.values))
        weights = torch.softmax(q @ k.transpose(-2, -1) / shape[-1] ** 0.5, -1)
        return (weights @ v).transpose(1, 2).reshape(batch, length, width)
