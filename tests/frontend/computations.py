"""Several computations as one module, so that they are compiled once."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Several(nn.Module):
    """Several computations of the same inputs; those that are modules are submodules."""

    def __init__(self, **computations: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({k: c for k, c in computations.items() if isinstance(c, nn.Module)})
        self.functions = {k: c for k, c in computations.items() if not isinstance(c, nn.Module)}

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            name: computation(*inputs)
            for name, computation in (*self.layers.items(), *self.functions.items())
        }
