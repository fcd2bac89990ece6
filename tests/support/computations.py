"""Several computations as one module, so that they are compiled once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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
    """Several computations, each with its own inputs: no loop and no gradient of one meets another's.

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


class Cases(nn.Module):
    """Any number of computations as one program, each with its own inputs.

    Attributes:
        inputs: of every computation, in their order.
    """

    def __init__(self, cases: Mapping[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]]) -> None:
        """
        Args:
            cases: name -> a function, and its inputs.
        """
        super().__init__()
        self.functions = {name: (function, len(inputs)) for name, (function, inputs) in cases.items()}
        self.inputs = [x for _, inputs in cases.values() for x in inputs]

    def forward(self, *inputs: torch.Tensor) -> dict[str, Any]:
        given = iter(inputs)
        return {
            name: function(*itertools.islice(given, width))
            for name, (function, width) in self.functions.items()
        }

    def apart(self, values: Sequence[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        """Values of all inputs, by computation."""
        left = iter(values)
        return {name: list(itertools.islice(left, width)) for name, (_, width) in self.functions.items()}
