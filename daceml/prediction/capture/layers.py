"""Which module a call belongs to, forward and backward."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

# how many nodes autograd has made in this thread
_sequence_number: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr")  # noqa: B009  pyright knows none


class Layers:
    """Where the forward pass is, and where it was when autograd made each of its nodes."""

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._open: list[str] = []
        self._since: list[int] = [0]
        self._layer: list[str] = [""]

    def enter(self, module: nn.Module, *_: Any) -> None:
        if module in self._names:
            self._open.append(self._names[module])
            self._mark()

    def leave(self, module: nn.Module, *_: Any) -> None:
        if module in self._names and self._open:
            self._open.pop()
            self._mark()

    def _mark(self) -> None:
        self._since.append(_sequence_number())
        self._layer.append(self.current)

    @property
    def current(self) -> str:
        return self._open[-1] if self._open else ""

    def of_node(self, node: Any) -> str:
        """The layer whose forward pass made a node of autograd."""
        number = node._sequence_nr()
        if number >= 2**63:  # what accumulates a gradient has no place in the forward pass
            return ""
        return self._layer[bisect_right(self._since, number) - 1]


@contextmanager
def layers_seen(model: nn.Module) -> Generator[Layers]:
    """Follow the forward pass of a model's modules while this lasts, also where one raises."""
    layers = Layers({module: name for name, module in model.named_modules()})
    before = register_module_forward_pre_hook(layers.enter)
    behind = register_module_forward_hook(layers.leave)
    try:
        yield layers
    finally:
        before.remove()
        behind.remove()
