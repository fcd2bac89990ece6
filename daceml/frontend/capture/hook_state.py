"""What the hooks of submodules hold: the state that their code reads, or keeps values in.

A hook of a submodule is part of a trace if it leaves nothing behind that the trace does not see. Besides its
arguments, it reaches the variables of its closure, its defaults, globals, and the object that it is a method
of; so do the functions among these. A trace compares that state before and after, and a program holds as long
as the state stays what it was.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

KINDS = ("_forward_hooks", "_forward_pre_hooks")
"""Where nn.Module keeps the hooks that a trace runs."""

CODE = (types.FunctionType, types.MethodType, functools.partial)
"""Values that are followed to the functions in them."""


def traced_hooks(module: nn.Module) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The hooks that a trace of a module runs, with the paths of their submodules.

    Those of the module itself run at every call, outside the program. torch's own (weight norm, spectral
    norm) set attributes, which the trace follows.
    """
    for path, child in module.named_modules():
        for kind in KINDS if path else ():
            for hook in child.__dict__[kind].values():
                home = str(getattr(hook, "__module__", "") or type(hook).__module__)
                if not home.startswith("torch."):
                    yield path, hook


def hook_name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__name__", type(hook).__name__)


def hook_variables(module: nn.Module) -> Iterator[tuple[str, Callable[[], Any]]]:
    """How to read each variable that the hooks within a trace of a module find by name.

    Functions and classes among globals are left out: they are code.
    """
    seen: set[object] = set()
    for path, hook in traced_hooks(module):
        for place, name, read in variables_of(hook, set()):
            if place not in seen:
                seen.add(place)
                yield f"{name} of hook {hook_name(hook)} of {path}", read


def variables_of(hook: Any, seen: set[int]) -> Iterator[tuple[object, str, Callable[[], Any]]]:
    """Where each variable of a hook is, its name, and how to read it."""
    for owner in _owners(hook):
        yield id(owner), "the object", functools.partial(_itself, owner)
    for function in functions_of(hook, seen):
        for name, cell in _cells(function):
            yield id(cell), name, functools.partial(_content, cell)
        known = function.__globals__
        for name in function.__code__.co_names:
            if name in known and not isinstance(known[name], (type, types.ModuleType, *CODE)):
                yield (id(known), name), name, functools.partial(known.get, name)


def _owners(hook: Any) -> Iterator[Any]:
    """Objects that a hook is bound to: of a method, the arguments of a partial call, a callable object."""
    if isinstance(hook, functools.partial):
        yield from (hook.args, hook.keywords)
        yield from _owners(hook.func)
    elif isinstance(hook, types.MethodType):
        yield hook.__self__
    elif isinstance(hook, types.FunctionType):
        yield from (d for d in (hook.__defaults__, hook.__kwdefaults__) if d)
    else:
        yield hook


def functions_of(hook: Any, seen: set[int]) -> Iterator[types.FunctionType]:
    """The functions that a hook consists of: itself, and those among the variables of its closure."""
    if isinstance(hook, functools.partial):
        yield from functions_of(hook.func, seen)
    elif isinstance(hook, types.MethodType):
        yield from functions_of(hook.__func__, seen)
    elif isinstance(hook, types.FunctionType):
        if id(hook) not in seen:
            seen.add(id(hook))
            yield hook
            for _, cell in _cells(hook):
                if isinstance(found := _content(cell), CODE):
                    yield from functions_of(found, seen)
    elif isinstance(call := type(hook).__call__, types.FunctionType):
        yield from functions_of(call, seen)


def _cells(function: types.FunctionType) -> Iterator[tuple[str, types.CellType]]:
    yield from zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return None


def _itself(value: Any) -> Any:
    return value
