"""What a call must agree with to reuse a compiled variant: its inputs, and the module it was compiled from.

Inputs are compared by a key, in time proportional to their number. The module is polled: which tensors,
submodules and training flags it holds, by identity. A replaced parameter, `functional_call` or a frozen batch
norm therefore never meets a program that was bound to something else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import nn

from daceml.errors import CallError
from daceml.runtime.watch import WatchedDict, dict_watch

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


def input_key(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """Everything about the inputs that a variant depends on: shape, type and device of tensors, value of the
    rest.

    Raises:
        CallError: a tensor subclass, or a leaf that cannot be compared.
    """
    key: list[Hashable] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if type(leaf) not in _PLAIN:
                _refuse_subclass(leaf)
            key.append((leaf.dtype, leaf.shape, leaf.device))
        else:
            try:
                hash(leaf)
            except TypeError as error:
                raise CallError(
                    f"an argument of type {type(leaf).__name__} cannot be part of a compiled call",
                    why="arguments are tensors, or plain values that can be compared (numbers, text)",
                    fix="pass a tensor, or register the type with torch.utils._pytree.register_pytree_node",
                ) from error
            key.append((type(leaf), leaf))
    return tuple(key)


class ModuleWatch:
    """A snapshot of a module; `unchanged()` says whether the module still is what it was.

    That is: the same tensors and submodules (by identity) under the same names, and the same training flags.
    """

    def __init__(self, module: nn.Module) -> None:
        dicts: list[WatchedDict] = []
        for child in module.modules():
            own = child.__dict__
            dicts.append((own, ("training",), False))
            members = [own[kind] for kind in ("_parameters", "_buffers", "_modules")]
            dicts += [(m, tuple(m), True) for m in members if m]
        self.unchanged = dict_watch(dicts)


def _refuse_subclass(leaf: torch.Tensor) -> None:
    raise CallError(
        f"a {type(leaf).__name__} cannot be passed to a compiled module",
        why="tensor subclasses attach behaviour that a compiled program would silently drop",
        fix="pass a plain tensor (for example .as_subclass(torch.Tensor)), or call the eager module",
    )
