"""Mish spelled out as three operators, which is how a user writes an activation that no library has."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import shapes
from benchmarks.models.spec import ModelSpec


class Mish(nn.Module):
    """x * tanh(softplus(x)), elementwise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(functional.softplus(x))


MISH = ModelSpec(
    name="mish",
    build=Mish,
    inputs=shapes.normal(*shapes.MISH),
    depth=3,
    source="Misra, Mish: A Self Regularized Non-Monotonic Activation Function (BMVC 2020), eq. 1",
)
