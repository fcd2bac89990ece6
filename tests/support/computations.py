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
        return {name: computation(*inputs) for name, computation in self.computations()}

    def computations(self) -> list[tuple[str, Any]]:
        """By name, submodules first."""
        return [*self.layers.items(), *self.functions.items()]


class Apart(Several):
    """Several computations, each of inputs of its own: no loop and no gradient of one meets another's.

    The inputs of the first computation come first, and each computation takes equally many.
    """

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        every = self.computations()
        width = len(inputs) // len(every)
        return {
            name: computation(*inputs[i * width : (i + 1) * width])
            for i, (name, computation) in enumerate(every)
        }

    def copies(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Inputs of all computations, from those of one."""
        return [x.clone() for _ in self.computations() for x in inputs]
