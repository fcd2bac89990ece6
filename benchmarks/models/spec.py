"""What a benchmark has to know of a network: how to build it, what to feed it, how deep it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

Inputs = Callable[[torch.Generator, torch.dtype], tuple[torch.Tensor, ...]]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A network with random weights.

    Attributes:
        name: the word for it on the command line.
        build: makes the module; its weights come from torch's global generator.
        inputs: makes one set of inputs from a generator, in the given floating-point type.
        depth: contractions and elementwise operators on the longest path, each of which may round once;
            the accuracy metric allows an error that grows with its square root.
        source: where the network is defined.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    depth: int
    source: str

    def module(self, seed: int = 0) -> nn.Module:
        """The network in eval mode, weights fixed by the seed; leaves torch's generator alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.build()
            randomise_running_statistics(module)
        return module.eval()

    def example(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
        """Inputs, the same for the same seed."""
        # Weights and inputs from one seed would be the same numbers; any constant keeps them apart.
        return self.inputs(torch.Generator().manual_seed(seed + 7919), dtype)


def randomise_running_statistics(module: nn.Module) -> None:
    """Give batch norms in `module`, in place, statistics and weights that a wrong formula would not survive.

    Fresh ones have mean 0, variance 1, weight 1 and bias 0, for which dropping the operator changes almost
    nothing.
    """
    with torch.no_grad():
        for child in module.modules():
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                if child.running_mean is not None and child.running_var is not None:
                    child.running_mean.normal_(0.0, 0.1)
                    child.running_var.uniform_(0.5, 1.5)
                if child.affine:
                    child.weight.uniform_(0.5, 1.5)
                    child.bias.normal_(0.0, 0.1)


def in_float64(module: nn.Module) -> nn.Module:
    """A copy with every floating-point weight and buffer in float64: the reference of the accuracy metric."""
    return copy.deepcopy(module).double()
