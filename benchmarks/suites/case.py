"""A program of a suite: a module, and what it is called with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree


class Arguments(NamedTuple):
    """Of one call of forward, by position: tensors, and the structure that holds them and everything else."""

    leaves: tuple[Any, ...]
    structure: Any

    @classmethod
    def of(cls, arguments: Sequence[Any]) -> Arguments:
        """A copy of what a caller passed; what is one object twice stays so."""
        leaves, structure = pytree.tree_flatten(tuple(arguments))
        memo: dict[int, Any] = {}
        return cls(tuple(copy.deepcopy(leaf, memo) for leaf in leaves), structure)

    def tensors(self, *, gradients: bool, wide: bool = False) -> list[torch.Tensor]:
        """Copies of its tensors; those of real numbers require a gradient if asked to.

        Args:
            wide: in float64 where they are in float32.
        """
        memo: dict[int, Any] = {}
        found = [copy.deepcopy(leaf, memo) for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        if wide:
            found = [t.double() if t.dtype is torch.float32 else t for t in found]
        for t in found:
            if gradients and t.is_floating_point():
                t.requires_grad_()
        return found

    def filled(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """The arguments with other tensors."""
        waiting = iter(tensors)
        leaves = [next(waiting) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.structure)

    def text(self) -> str:
        """Shapes, and constants, shortly."""
        return ", ".join(
            f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
            if isinstance(leaf, torch.Tensor)
            else repr(leaf)[:40]
            for leaf in self.leaves
        )[:200]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program.

    Attributes:
        suite: whose it is.
        make: a fresh module, the same one at every call.
        calls: arguments of each call that the suite makes, in order.
    """

    suite: str
    name: str
    make: Callable[[], nn.Module]
    calls: Callable[[], list[Arguments]]
