"""What the hooks of submodules hold: the state that their code reads, or keeps values in.

A hook of a submodule is part of a trace if it leaves nothing behind that the trace does not see. Besides its
arguments, it reaches the variables of its closure, its defaults, globals, and the object that it is a method
of; so do the functions among these. A trace compares that state before and after, and a program holds as long
as the state stays what it was.
"""

from __future__ import annotations

import dis
import functools
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

KINDS = ("_forward_hooks", "_forward_pre_hooks")
"""Where nn.Module keeps the hooks that a trace runs."""

_CODE = (types.FunctionType, types.MethodType, functools.partial)
_OPAQUE_BUT_CONSTANT = (
    bool, int, float, complex, str, bytes, type(None), type(...), type, property, ContextVar,
    types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_WATCHED = (torch.Tensor, nn.Module, list, tuple, dict, set, frozenset, deque)


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
        for place, name, read in _variables(hook, set()):
            if place not in seen:
                seen.add(place)
                yield f"{name} of hook {hook_name(hook)} of {path}", read


def hook_refusal(hook: Callable[..., Any]) -> str | None:
    """Why a trace cannot tell whether a hook keeps something; None if it can."""
    from daceml.frontend.capture.module_attributes import is_plain_object, walk

    for function in _functions(hook, set()):
        outer = set(function.__code__.co_freevars)
        for step in dis.get_instructions(function.__code__):
            if step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outer:
                return f"assigns its variable {step.argval!r}"
    seen: set[int] = set()
    for _, name, read in _variables(hook, set()):
        for path, part in walk(name, read(), seen):
            constant = isinstance(part, (*_OPAQUE_BUT_CONSTANT, *_CODE))
            if not constant and not isinstance(part, _WATCHED) and not is_plain_object(part):
                return f"uses {path}, whose type {type(part).__qualname__} does not show its state"
    return None


def _variables(hook: Any, seen: set[int]) -> Iterator[tuple[object, str, Callable[[], Any]]]:
    """Where each variable of a hook is, its name, and how to read it."""
    for owner in _owners(hook):
        yield id(owner), "the object", functools.partial(_itself, owner)
    for function in _functions(hook, seen):
        for name, cell in _cells(function):
            yield id(cell), name, functools.partial(_content, cell)
        known = function.__globals__
        for name in function.__code__.co_names:
            if name in known and not isinstance(known[name], (type, types.ModuleType, *_CODE)):
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


def _functions(hook: Any, seen: set[int]) -> Iterator[types.FunctionType]:
    """The functions that a hook consists of: itself, and those among the variables of its closure."""
    if isinstance(hook, functools.partial):
        yield from _functions(hook.func, seen)
    elif isinstance(hook, types.MethodType):
        yield from _functions(hook.__func__, seen)
    elif isinstance(hook, types.FunctionType):
        if id(hook) not in seen:
            seen.add(id(hook))
            yield hook
            for _, cell in _cells(hook):
                if isinstance(found := _content(cell), _CODE):
                    yield from _functions(found, seen)
    elif isinstance(call := type(hook).__call__, types.FunctionType):
        yield from _functions(call, seen)


def _cells(function: types.FunctionType) -> Iterator[tuple[str, types.CellType]]:
    yield from zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return None


def _itself(value: Any) -> Any:
    return value
