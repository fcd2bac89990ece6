"""A model of another library: how it is made, and what it is called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """One model in a small configuration, with random weights.

    Attributes:
        name: library and model.
        make: the module.
        inputs: arguments of forward by name, for a batch of this size; those of a position are called `0`, …
        batches: two sizes; one compiled module with symbolic sizes meets both.
        depth: operators in a row that add up rounding errors, roughly.
        make_precise: the module of the float64 reference, whose values are replaced; None where `make`'s can
            be that, as it names no element type.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    batches: tuple[int, int] = (2, 3)
    depth: int = 100
    make_precise: Callable[[], nn.Module] | None = None


def tokens(vocabulary: int = 100, length: int = 16, **more: Callable[[int], Any]) -> Callable[[int], Inputs]:
    """Token numbers, and further arguments by name."""

    def inputs(batch: int) -> Inputs:
        found: dict[str, Any] = {"input_ids": torch.randint(3, vocabulary, (batch, length))}
        return {**found, **{name: make(batch) for name, make in more.items()}}

    return inputs


def images(size: int = 64, *, channels: int = 3, name: str = "0") -> Callable[[int], Inputs]:
    """Square images."""
    return lambda batch: {name: torch.randn(batch, channels, size, size)}


def called(module: Any, inputs: Inputs) -> Any:
    """What a module returns for inputs by name or position."""
    positional = [value for name, value in inputs.items() if name.isdecimal()]
    return module(*positional, **{name: value for name, value in inputs.items() if not name.isdecimal()})
