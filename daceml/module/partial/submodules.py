"""Cut at submodules: forward runs eagerly, and its submodules are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from daceml.frontend.capture.redirected_forward import Forward, forward_of, redirected

_NO_FORWARD = nn.Module.forward


class CompiledSubmodules:
    """The forward of a module, with its submodules compiled one by one.

    Args:
        module: as the user wrote it.
        compiled: makes the compiled forward of a submodule.
        single: compile modules of torch that have no submodules as well, such as one nn.Linear.
    """

    def __init__(
        self, module: nn.Module, compiled: Callable[[nn.Module], Forward], *, single: bool = False
    ) -> None:
        self._module, self._compiled, self._single = module, compiled, single
        self._known: dict[int, tuple[nn.Module, Forward]] = {}

    @staticmethod
    def applies(module: nn.Module, *, single: bool = False) -> bool:
        """Whether a module has submodules that are worth a program of their own."""
        return next(_parts(module, single=single), None) is not None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with redirected([self._part(child) for child in _parts(self._module, single=self._single)]):
            return forward_of(self._module)(*args, **kwargs)

    def _part(self, child: nn.Module) -> tuple[nn.Module, Forward]:
        known = self._known.get(id(child))
        if known is None:
            known = self._known[id(child)] = (child, self._compiled(child))
        return known


def _parts(module: nn.Module, *, single: bool) -> Iterator[nn.Module]:
    """The submodules that are compiled, items of containers among them."""
    for child in module.children():
        if isinstance(child, torch.jit.ScriptModule):
            continue
        if type(child).forward is _NO_FORWARD:  # nn.ModuleList, and what else only holds modules
            yield from _parts(child, single=single)
        elif _is_worth(child, single=single):
            yield child


def _is_worth(module: nn.Module, *, single: bool) -> bool:
    if hasattr(type(module), "_session"):
        return False  # compiled already
    if next(module.children(), None) is not None:
        return True
    of_torch = type(module).__module__.startswith("torch.nn.")
    return not of_torch or (single and next(module.parameters(recurse=False), None) is not None)
