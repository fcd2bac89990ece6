"""Cut at submodules: forward runs eagerly, and compiled views of its submodules do the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from daceml.frontend.capture.module_attributes import slots

_NO_FORWARD = nn.Module.forward


class CompiledSubmodules:
    """The forward of a module, with its submodules compiled one by one.

    Forward runs on a stand-in: an object of the module's class with the same attributes, whose submodules are
    compiled views. What forward assigns to attributes is written to the module.

    Args:
        module: as the user wrote it.
        compiled: makes a compiled view of a submodule.
        single: compile modules of torch that have no submodules as well, such as one nn.Linear.
    """

    def __init__(
        self, module: nn.Module, compiled: Callable[[nn.Module], nn.Module], *, single: bool = False
    ) -> None:
        self._module, self._compiled, self._single = module, compiled, single
        self._views: dict[int, tuple[nn.Module, nn.Module]] = {}

    @staticmethod
    def applies(module: nn.Module, *, single: bool = False) -> bool:
        """Whether a module has submodules that are worth a program of their own.

        Forward must be the class's: one that was assigned to the instance is bound to the module itself.
        """
        return "forward" not in module.__dict__ and any(_inner(module, single=single))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stand_in = self._stand_in(self._module)
        before = dict(stand_in.__dict__)
        members = dict(before["_modules"])
        try:
            return stand_in.forward(*args, **kwargs)
        finally:
            _write_back(self._module, stand_in, before, members)

    def _stand_in(self, module: nn.Module) -> nn.Module:
        made = object.__new__(type(module))
        made.__dict__.update(module.__dict__)
        for name in slots(module):
            if name != "__dict__" and hasattr(module, name):
                object.__setattr__(made, name, getattr(module, name))
        made.__dict__["_modules"] = {
            name: None if child is None else self._view(child) for name, child in _children(module).items()
        }
        return made

    def _view(self, child: nn.Module) -> nn.Module:
        if _is_container(child):
            return self._stand_in(child)  # its items may change from call to call
        known = self._views.get(id(child))
        if known is None:
            view = self._compiled(child) if _is_worth(child, single=self._single) else child
            known = self._views[id(child)] = (child, view)
        return known[1]


def _inner(module: nn.Module, *, single: bool) -> list[nn.Module]:
    found: list[nn.Module] = []
    for child in module.children():
        if _is_container(child):
            found += _inner(child, single=single)
        elif _is_worth(child, single=single):
            found.append(child)
    return found


def _children(module: nn.Module) -> dict[str, nn.Module | None]:
    return module.__dict__["_modules"]


def _is_container(module: nn.Module) -> bool:
    """Whether a module only holds others; a user's subclass may do more."""
    return type(module) in (nn.ModuleList, nn.ModuleDict) and bool(_children(module))


def _is_worth(module: nn.Module, *, single: bool) -> bool:
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_session"):
        return False  # compiled already
    if type(module).forward is _NO_FORWARD:
        return False  # a ParameterList
    if next(module.children(), None) is not None:
        return True
    of_torch = type(module).__module__.startswith("torch.nn.")
    return not of_torch or (single and next(module.parameters(recurse=False), None) is not None)


def _write_back(
    module: nn.Module, stand_in: nn.Module, before: dict[str, Any], members: dict[str, nn.Module | None]
) -> None:
    """Give the module what forward assigned to its stand-in."""
    own = module.__dict__
    for name, value in stand_in.__dict__.items():
        if name == "_modules":
            continue
        if name not in before or before[name] is not value:
            own[name] = value
    for name in before.keys() - stand_in.__dict__.keys():
        own.pop(name, None)
    now = stand_in.__dict__.get("_modules", members)
    if now != members:
        for name, child in now.items():
            if members.get(name) is not child:
                _children(module)[name] = child
        for name in members.keys() - now.keys():
            _children(module).pop(name, None)
