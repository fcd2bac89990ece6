"""What forward does besides computing with tensors: a trace would do it once, and a program never again.

Python's random numbers, clocks, output and changes of global variables are noticed while forward is traced,
and undone as far as they can be; such a forward is no program.
"""

from __future__ import annotations

import builtins
import datetime
import functools
import random
import sys
import time
import types
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import nn

from daceml.frontend.capture.module_attributes import held_values, is_users
from daceml.frontend.capture.provenance import is_user_file

_PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))

_PYTHON, _NUMPY = "the module random", "numpy.random"
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)

# C functions that give another answer at another call, or that the world sees
_CLOCKS = (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "localtime", "gmtime", "ctime", "strftime",
)  # fmt: skip
_BUILTINS = {
    **{getattr(time, name): "reads a clock" for name in _CLOCKS},
    builtins.print: "prints",
    builtins.input: "reads input",
    builtins.open: "opens a file",
}
_METHODS = {
    "now": (datetime.datetime, "reads a clock"),
    "utcnow": (datetime.datetime, "reads a clock"),
    "today": (datetime.date, "reads a clock"),
}
_NAMES = frozenset(_CLOCKS) | {"print", "input", "open", *_METHODS}


class PythonEffectError(Exception):
    """Forward has an effect that a trace cannot record; the message says which.

    Attributes:
        untraceable: whether Dynamo would record it wrongly as well.
    """

    def __init__(self, message: str, *, untraceable: bool = False) -> None:
        super().__init__(message)
        self.untraceable = untraceable


@contextmanager
def watched_effects(module: nn.Module, *, output: bool = True) -> Generator[None]:
    """Find effects of Python within the block, in which forward is traced.

    Args:
        output: whether what forward prints is an effect; without it, forward prints while it is traced.
    Raises:
        PythonEffectError: the first effect; random states and global variables are as they were before.
    """
    generators = list(_generators(module))
    states = [state() for _, state, _ in generators]
    variables = _variables(module)
    values = [dict(scope) for scope in variables]
    found: list[str] = []
    untraceable = False
    codes = frozenset(_functions(module))
    mentioned = any(not _NAMES.isdisjoint(code.co_names) for code in codes)
    with _watched_calls(found, codes, output=output) if mentioned else _nothing():
        yield
    for (name, state, restore), before in zip(generators, states, strict=True):
        if not _equal(state(), before):
            restore(before)
            found.append(f"draws random numbers from {name}")
            # Dynamo knows the generators of the two modules, and takes what others return for constants
            untraceable |= name not in (_PYTHON, _NUMPY)
    for scope, before in zip(variables, values, strict=True):
        for name in _changed(scope, before):
            found.append(f"changes the global variable {name!r}")
            if name in before:
                scope[name] = before[name]
            else:
                del scope[name]
    if found:
        raise PythonEffectError(found[0], untraceable=untraceable)


@contextmanager
def _nothing() -> Generator[None]:
    yield


def _equal(now: Any, before: Any) -> bool:
    if isinstance(now, np.ndarray):
        return bool(np.array_equal(now, before))
    if isinstance(now, dict):
        return all(_equal(now[key], before[key]) for key in now)
    if isinstance(now, tuple):
        return all(map(_equal, now, before))
    return now == before


def _generators(module: nn.Module) -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], None]]]:
    """Each source of Python's random numbers within reach: its name, its state, and how that is set."""
    yield _PYTHON, random.getstate, random.setstate
    yield _NUMPY, np.random.get_state, np.random.set_state
    held = dict(held_values(module))
    for scope in _variables(module):
        held |= {name: value for name, value in scope.items() if isinstance(value, _GENERATORS)}
    for name, value in held.items():
        if isinstance(value, random.Random):
            yield name, value.getstate, value.setstate
        elif isinstance(value, np.random.RandomState):
            yield name, value.get_state, value.set_state
        elif isinstance(value, np.random.Generator):
            bits: Any = value.bit_generator
            yield name, lambda bits=bits: bits.state, functools.partial(setattr, bits, "state")


def _functions(module: nn.Module) -> dict[types.CodeType, dict[str, Any]]:
    """The code of the user's that forward may run, as far as names lead to it, with its global variables."""
    found: dict[types.CodeType, dict[str, Any]] = {}
    classes = {base for child in module.modules() for base in type(child).__mro__ if is_users(base)}
    waiting: list[Any] = [member for kind in classes for member in vars(kind).values()]
    waiting += [child.__dict__["forward"] for child in module.modules() if "forward" in child.__dict__]
    while waiting:
        function = waiting.pop()
        if isinstance(function, staticmethod | classmethod | types.MethodType):
            function = function.__func__
        if isinstance(function, property):
            function = function.fget
        function = getattr(function, "__wrapped__", function)
        if not isinstance(function, types.FunctionType) or function.__code__ in found:
            continue
        if not is_user_file(function.__code__.co_filename):
            continue
        scope = function.__globals__
        for code in _codes(function.__code__):
            found[code] = scope
            named = [scope[name] for name in code.co_names if name in scope]
            spaces = [vars(value) for value in named if isinstance(value, types.ModuleType)]
            waiting += named
            waiting += [space[name] for space in spaces for name in code.co_names if name in space]
        waiting += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _variables(module: nn.Module) -> list[dict[str, Any]]:
    """The global variables of the user's code."""
    return list({id(scope): scope for scope in _functions(module).values()}.values())


def _changed(scope: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Plain variables that have another value; modules, functions and caches come and go by themselves."""
    return [
        name
        for name, value in scope.items()
        if isinstance(value, _PLAIN)
        and not name.startswith("__")
        and (name not in before or (before[name] is not value and before[name] != value))
    ]


@contextmanager
def _watched_calls(found: list[str], codes: frozenset[types.CodeType], *, output: bool) -> Generator[None]:
    """Notice calls of C functions from forward's code; the first one is not run any more.

    Other code may run meanwhile: garbage collection has callbacks.
    """

    def profile(frame: types.FrameType, event: str, function: Any) -> None:
        if event != "c_call" or frame.f_code not in codes:
            return
        effect = _effect(function)
        if effect and (output or function is not builtins.print):
            where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
            found.append(f"{effect} ({where})")
            raise PythonEffectError(found[-1])

    if sys.getprofile() is not None:  # a profiler of the user's has the only place
        yield
        return
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def _effect(function: Any) -> str:
    try:
        known = _BUILTINS.get(function, "")
    except TypeError:  # a method of something that cannot be hashed
        return ""
    kind, effect = _METHODS.get(getattr(function, "__name__", ""), (None, ""))
    owner = getattr(function, "__self__", None)
    return known or (effect if kind and isinstance(owner, type) and issubclass(owner, kind) else "")
