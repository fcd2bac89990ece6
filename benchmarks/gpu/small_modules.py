"""Small modules that reach each kind of call on a device once: the first steps of a first run use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import shapes
from benchmarks.models.mish import Mish
from benchmarks.models.spec import Inputs, ModelSpec, he_normal, with_weights

HEADS, FEATURES, KEYS = 4, 32, 64


class Attention(nn.Module):
    """Attention of [N, heads, keys, features] operands, with an additive mask or without."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        mask = torch.where(torch.rand(KEYS, KEYS) < 0.1, -10000.0, 0.0) if masked else None
        self.register_buffer("mask", mask)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = self.mask.to(q) if isinstance(self.mask, torch.Tensor) else None
        # twice, so that a kernel is generated around the call
        return 2.0 * functional.scaled_dot_product_attention(q, k, v, mask)


class Lookup(nn.Module):
    """An embedding, and a sum over the words of a sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(97, 40)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.table(words)).sum(1)


def linear_norm() -> nn.Module:
    """A linear layer and what follows it in a transformer: GELU, then LayerNorm."""
    return nn.Sequential(nn.Linear(96, 200), nn.GELU(), nn.LayerNorm(200))


def mlp() -> nn.Module:
    """Three linear layers with biases and activations."""
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 10))


def convolution() -> nn.Module:
    """Convolution, batch norm, activation and pooling."""
    layers = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Conv2d(16, 8, 3, stride=2, groups=2), nn.SiLU())


def softmax() -> nn.Module:
    """Softmax of rows that are no multiple of a warp."""
    return nn.Softmax(-1)


def operands(count: int, *shape: int) -> Inputs:
    """So many normal tensors of one shape."""
    one = shapes.normal(*shape)

    def made(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None) -> tuple[Any, ...]:
        return tuple(one(generator, dtype, batch)[0] for _ in range(count))

    return made


def _spec(name: str, build: Callable[[], nn.Module], inputs: Inputs, depth: int) -> ModelSpec:
    return ModelSpec(
        name=name, build=with_weights(build, he_normal), inputs=inputs, depth=depth, source=__name__
    )


_ATTENTION = operands(3, 2, HEADS, KEYS, FEATURES)

SMALL_MODULES: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _spec("mish", Mish, shapes.normal(64, 1000), 3),
        _spec("linear_norm", linear_norm, shapes.normal(130, 96), 7),
        _spec("softmax", softmax, shapes.normal(33, 517), 4),
        _spec("mlp", mlp, shapes.normal(33, 64), 8),
        _spec("convolution", convolution, shapes.normal(4, 3, 21, 18), 8),
        _spec("attention", partial(Attention, masked=False), _ATTENTION, 6),
        _spec("masked_attention", partial(Attention, masked=True), _ATTENTION, 7),
        _spec("lookup", Lookup, shapes.classes(97, 16, 11), 3),
    )
}
