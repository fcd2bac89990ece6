"""What forward does besides computing with tensors: a trace would do it once, and a program never again.

Python's random numbers, clocks, output, and changes of global variables and class attributes are noticed
while forward is traced, and undone where they can be, however the trace ends. Such a forward is no program.
"""

from __future__ import annotations

import builtins
import datetime
import dis
import functools
import inspect
import io
import os
import random
import sysconfig
import time
import types
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from daceml.frontend.capture.hook_state import hook_name, traced_hooks
from daceml.frontend.capture.module_attributes import attributes, held_values, is_plain_object, is_users
from daceml.frontend.capture.provenance import is_user_file
from daceml.runtime.call_watch import watched_calls

_PYTHON, _NUMPY = "the module random", "numpy.random"
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
_CONTAINERS = (list, dict, set, deque)

# C functions that give another answer at another call, or that the world sees
_CLOCKS = (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "localtime", "gmtime", "ctime", "strftime",
)  # fmt: skip
_FUNCTIONS = {
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
_WRITES = ("write", "writelines")
_NAMES = frozenset({*_CLOCKS, "print", "input", "open", *_METHODS, *_WRITES})


class PythonEffectError(Exception):
    """Forward has an effect that a trace cannot record; the message says which.

    Attributes:
        actor: what has the effect: forward, or a hook within it.
        untraceable: whether Dynamo would record it wrongly as well.
        forget: removes what forward has only looked up and remembered, which stands meanwhile; None if
            forward did anything else.
    """

    def __init__(
        self,
        message: str,
        *,
        actor: str = "forward",
        untraceable: bool = False,
        forget: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(message)
        self.actor, self.untraceable, self.forget = actor, untraceable, forget


@contextmanager
def watched_effects(module: nn.Module, *, output: bool = True) -> Generator[None]:
    """Find effects of Python within the block, in which forward is traced.

    Args:
        output: whether what forward prints is an effect; without it, forward prints while it is traced.
    Raises:
        PythonEffectError: the first effect; it takes the place of what the block raises.
    """
    code = _Code.of(module)
    watches = [*_watched_generators(module, code), *_watched_variables(module, code)]
    calls: list[str] = []
    callers: list[types.CodeType] = []
    failure: Exception | None = None
    try:
        with (
            _generator_watched(calls),
            code.calls_watched(calls, callers, output=output) if code.mentions(_NAMES) else nullcontext(),
        ):
            yield
    except Exception as error:
        failure = error
    changed = [watch for watch in watches if watch.changed()]

    def restore() -> None:
        for watch in changed:
            watch.restore()

    if changed and failure is None and not calls and all(watch.remembers() for watch in changed):
        raise PythonEffectError(changed[0].effect, actor=_actor(module, changed[0].codes), forget=restore)
    restore()
    found = [*calls, *(watch.effect for watch in changed)]
    if found:
        untraceable = any(watch.untraceable for watch in changed)
        codes = callers[:1] if calls else changed[0].codes
        if len(callers) < len(calls):  # torch's generator, which torch's own code may reach
            codes = ()
        actor = _actor(module, codes)
        raise PythonEffectError(found[0], actor=actor, untraceable=untraceable) from failure
    if failure is not None:
        raise failure


def _actor(module: nn.Module, codes: Sequence[types.CodeType]) -> str:
    """What has an effect in one of `codes`: a hook if only hooks of submodules lead to all of them."""
    own = _Code.of(module, hooks=False)
    if codes and not any(code in own.scopes for code in codes):
        for path, hook in traced_hooks(module):
            if any(code in _Code.reached_from([hook]).scopes for code in codes):
                return f"hook {hook_name(hook)} of submodule {path!r}"
    return "forward"


@dataclass(frozen=True, kw_only=True)
class _Watch:
    """A state that forward may change.

    Attributes:
        changed: whether it has changed since the watch was made.
        restore: makes it what it was.
        remembers: whether it has gained only code and objects without tensors under new keys, such as a
            backend for a class of tensors: a second trace finds them, and changes nothing if that is all.
        codes: those that name the state, if it is a global variable.
    """

    effect: str
    changed: Callable[[], bool]
    restore: Callable[[], None]
    remembers: Callable[[], bool] = lambda: False
    untraceable: bool = False
    codes: tuple[types.CodeType, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Code:
    """The code of the user's that forward may run, as far as names lead to it.

    Attributes:
        scopes: code -> its global variables.
        library: code of the standard library, which torch may run as well: it opens source files, for one.
    """

    scopes: dict[types.CodeType, dict[str, Any]] = field(default_factory=dict[types.CodeType, dict[str, Any]])
    library: set[types.CodeType] = field(default_factory=set[types.CodeType])

    @classmethod
    def of(cls, module: nn.Module, *, hooks: bool = True) -> _Code:
        """What the classes of a module's parts, and of objects that it holds, define, and call by name.

        Args:
            hooks: whether the hooks of submodules are among it.
        """
        kinds = {base for child in module.modules() for base in type(child).__mro__ if is_users(base)}
        waiting: list[Any] = [hook for _, hook in traced_hooks(module)] if hooks else []
        for _, value in held_values(module, hooks=hooks):
            if is_plain_object(value):
                kinds |= {base for base in type(value).__mro__ if is_users(base)}
            waiting.append(value)
        waiting += [member for kind in kinds for member in vars(kind).values()]
        return cls.reached_from(waiting)

    @classmethod
    def reached_from(cls, values: Sequence[Any]) -> _Code:
        """The code that functions and callable objects consist of, and call by name."""
        found = cls()
        waiting = [*values]
        waiting += [type(v).__call__ for v in values if not isinstance(v, types.FunctionType) and callable(v)]
        while waiting:
            waiting += found.enter(waiting.pop())
        return found

    def enter(self, value: Any) -> list[Any]:
        """Add a function; what else its names lead to."""
        if isinstance(value, property):
            value = value.fget
        value = getattr(value, "__func__", value)
        value = getattr(value, "__wrapped__", value)
        if not isinstance(value, types.FunctionType):
            return []
        if value.__code__ in self.scopes or value.__code__ in self.library:
            return []
        if not is_user_file(value.__code__.co_filename):
            return []
        scope = value.__globals__
        more = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        foreign = _is_library(value.__code__)
        for code in _codes(value.__code__):
            if foreign:
                self.library.add(code)
            else:
                self.scopes[code] = scope
            named = [scope[name] for name in code.co_names if name in scope]
            spaces = [vars(v) for v in named if isinstance(v, types.ModuleType | type) and _is_open(v)]
            more += named
            more += [space[name] for space in spaces for name in code.co_names if name in space]
            more += [method for v in named if is_plain_object(v) for method in vars(type(v)).values()]
        return more

    def mentions(self, names: frozenset[str]) -> bool:
        """Whether one of the names occurs."""
        return any(not names.isdisjoint(code.co_names) for code in (*self.scopes, *self.library))

    def runs(self, frame: types.FrameType | None) -> bool:
        """Whether a frame is of this code, or of the standard library on its behalf."""
        while frame is not None and _is_library(frame.f_code):
            frame = frame.f_back
        return frame is not None and frame.f_code in self.scopes

    def globals_named(self) -> Iterator[tuple[str, dict[str, Any], tuple[types.CodeType, ...]]]:
        """Every global variable that the code reads or writes, the scope that it is in, and the code."""
        found: dict[tuple[int, str], tuple[dict[str, Any], list[types.CodeType]]] = {}
        for code, scope in self.scopes.items():
            for name in dict.fromkeys(code.co_names):
                if name in scope:
                    found.setdefault((id(scope), name), (scope, []))[1].append(code)
        for (_, name), (scope, codes) in found.items():
            yield name, scope, tuple(codes)

    def globals_stored(self) -> Iterator[tuple[str, dict[str, Any], tuple[types.CodeType, ...]]]:
        """Every global variable that the code assigns or deletes, the scope that it is in, and the code."""
        for code, scope in self.scopes.items():
            for instruction in dis.get_instructions(code):
                if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                    yield str(instruction.argval), scope, (code,)

    @contextmanager
    def calls_watched(
        self, found: list[str], callers: list[types.CodeType], *, output: bool
    ) -> Generator[None]:
        """Notice calls of C functions from this code, and what calls; the first one is not run any more.

        Other code may run meanwhile: garbage collection has callbacks. A profiler of the user's rests.
        """

        def notice(frame: types.FrameType, function: Any) -> None:
            effect = _effect(function)
            if effect and (output or effect not in _OUTPUT) and self.runs(frame):
                where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
                found.append(f"{effect} ({where})")
                callers.append(frame.f_code)
                raise PythonEffectError(found[-1])

        with watched_calls(_FUNCTIONS, (*_METHODS, *_WRITES), notice):
            yield


_OUTPUT = ("prints", "writes to a file")


def _is_open(value: Any) -> bool:
    """Whether a module or class may hold functions of the user's."""
    return (
        is_users(value) if isinstance(value, type) else is_user_file(getattr(value, "__file__", None) or "<")
    )


@functools.cache
def _library_folders() -> tuple[str, ...]:
    return tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))


def _is_library(code: types.CodeType) -> bool:
    """Whether code is of the standard library, or was made by it, as methods of dataclasses are."""
    path = code.co_filename
    if "site-packages" in path or "dist-packages" in path:
        return False
    return path.startswith("<") or path.startswith(_library_folders())


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


def _effect(function: Any) -> str:
    """What a call of a C function does besides returning a value; empty for most."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    try:
        known = _FUNCTIONS.get(function, "")
    except TypeError:  # a method of something that cannot be hashed
        known = ""
    kind, effect = _METHODS.get(name, (None, ""))
    if kind is not None and isinstance(owner, type) and issubclass(owner, kind):
        return effect
    if name in _WRITES and isinstance(owner, io.IOBase):
        return "writes to a file"
    return known


class _WatchedGenerator:
    """torch's generator, as `torch.manual_seed`, `torch.random.fork_rng` and the like reach it."""

    def __init__(self, generator: torch.Generator, found: list[str]) -> None:
        self._generator, self._found = generator, found

    def __getattr__(self, name: str) -> Any:
        frames = inspect.currentframe() if name in _GENERATOR_STATE else None
        for _ in range(2):  # of this method, and of torch.random
            frames = frames and frames.f_back
        caller = frames.f_code.co_filename if frames is not None else ""
        if caller and not caller.endswith(_STATE_KEEPERS):
            self._found.append(f"{_GENERATOR_STATE[name]} the state of torch's random generator")
        return getattr(self._generator, name)


# A checkpoint keeps the state for a second forward, which no trace has; Dynamo puts back what it finds.
_STATE_KEEPERS = tuple(
    os.path.join("torch", *path)
    for path in (("utils", "checkpoint.py"), ("_dynamo", "utils.py"), ("_dynamo", "convert_frame.py"))
)
_GENERATOR_STATE = {
    **dict.fromkeys(("manual_seed", "seed", "set_state", "graphsafe_set_state"), "sets"),
    **dict.fromkeys(("get_state", "initial_seed", "clone_state", "graphsafe_get_state"), "reads"),
}


@contextmanager
def _generator_watched(found: list[str]) -> Generator[None]:
    """Notice what looks at torch's generator for the CPU or sets it; a trace does so once.

    Nothing draws from it while operators are traced.
    """
    own = torch.default_generator
    before = own.get_state()
    namespace: Any = torch.random
    namespace.default_generator = _WatchedGenerator(own, found)
    try:
        yield
    finally:
        namespace.default_generator = own
        with torch._C.DisableTorchFunction(), _disable_current_modes():  # pyright: ignore[reportPrivateUsage]
            moved = not torch.equal(own.get_state(), before)
        if moved:
            own.set_state(before)
            if not found:
                found.append("moves torch's random generator")


def _watched_generators(module: nn.Module, code: _Code) -> Iterator[_Watch]:
    """Each source of Python's random numbers that forward may draw from."""
    held = dict(held_values(module))
    for number, (name, scope, _) in enumerate(code.globals_named()):
        value = scope[name]
        owner = getattr(value, "__self__", None)  # from random import uniform
        if value is random or owner is random._inst:  # pyright: ignore
            yield _generator(_PYTHON, random.getstate, random.setstate)
        elif value in (np, np.random) if isinstance(value, types.ModuleType) else _is_numpys(owner):
            yield _generator(_NUMPY, np.random.get_state, np.random.set_state)
        elif isinstance(value, _GENERATORS) or isinstance(owner, _GENERATORS):
            held[f"{name} {number}"] = value if isinstance(value, _GENERATORS) else owner
    for path, value in held.items():
        name = path.partition(" ")[0]
        if isinstance(value, random.Random):
            yield _generator(name, value.getstate, value.setstate)
        elif isinstance(value, np.random.RandomState):
            yield _generator(name, value.get_state, value.set_state)
        elif isinstance(value, np.random.Generator):
            bits: Any = value.bit_generator
            yield _generator(name, lambda bits=bits: bits.state, functools.partial(setattr, bits, "state"))


def _is_numpys(owner: Any) -> bool:
    return isinstance(owner, np.random.RandomState) and owner is getattr(np.random.mtrand, "_rand", None)


def _generator(name: str, state: Callable[[], Any], restore: Callable[[Any], None]) -> _Watch:
    before = state()
    return _Watch(
        effect=f"draws random numbers from {name}",
        changed=lambda: not _equal(state(), before),
        restore=lambda: restore(before),
        # Dynamo knows the generators of the two modules, and takes what others return for constants
        untraceable=name not in (_PYTHON, _NUMPY),
    )


def _equal(now: Any, before: Any) -> bool:
    if isinstance(now, np.ndarray):
        return bool(np.array_equal(now, before))
    if isinstance(now, dict):
        return all(_equal(now[key], before[key]) for key in now)
    if isinstance(now, tuple):
        return all(map(_equal, now, before))
    return now == before


def _watched_variables(module: nn.Module, code: _Code) -> Iterator[_Watch]:
    """Global variables that forward assigns, global containers and objects, and attributes of classes."""
    for name, scope, codes in code.globals_stored():
        yield replace(_entry(f"changes the global variable {name!r}", scope, name), codes=codes)
    for name, scope, codes in code.globals_named():
        value = scope[name]
        if is_plain_object(value) and hasattr(value, "__dict__"):
            yield replace(_content(f"changes the global object {name!r}", vars(value)), codes=codes)
        elif type(value) in _CONTAINERS:
            yield replace(_content(f"changes the global variable {name!r}", value), codes=codes)
    for kind in {base for child in module.modules() for base in type(child).__mro__ if is_users(base)}:
        yield _attributes(kind)


_MISSING = object()


def _entry(effect: str, scope: dict[str, Any], name: str) -> _Watch:
    before = scope.get(name, _MISSING)

    def restore() -> None:
        if before is _MISSING:
            scope.pop(name, None)
        else:
            scope[name] = before

    return _Watch(effect=effect, changed=lambda: scope.get(name, _MISSING) is not before, restore=restore)


def _content(effect: str, container: Any) -> _Watch:
    before = container.copy()

    def changed() -> bool:
        if len(container) != len(before):
            return True
        if isinstance(container, dict):
            return any(container.get(key, _MISSING) is not value for key, value in before.items())
        if isinstance(container, set):
            return container != before
        return any(a is not b for a, b in zip(container, before, strict=True))

    def restore() -> None:
        container.clear()
        (container.extend if isinstance(container, list | deque) else container.update)(before)

    def remembers() -> bool:
        if not isinstance(container, dict) or any(
            container.get(k, _MISSING) is not before[k] for k in before
        ):
            return False
        new = [value for key, value in container.items() if key not in before]
        return all(map(_is_without_tensors, new))

    return _Watch(effect=effect, changed=changed, restore=restore, remembers=remembers)


def _is_without_tensors(value: Any) -> bool:
    """Whether a value is code, or an object that holds code and plain values only."""
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None
    if isinstance(value, type):
        return True
    plain = (type, types.ModuleType, str, bool, int, float, type(None))
    return is_plain_object(value) and all(isinstance(held, plain) for held in attributes(value).values())


def _attributes(kind: type) -> _Watch:
    before = dict(vars(kind))

    def different() -> list[str]:
        now = vars(kind)
        return [n for n in {**now, **before} if now.get(n, _MISSING) is not before.get(n, _MISSING)
                and not n.startswith("__")]  # fmt: skip

    def restore() -> None:
        for name in different():
            if name in before:
                setattr(kind, name, before[name])
            else:
                delattr(kind, name)

    return _Watch(
        effect=f"changes an attribute of the class {kind.__qualname__}",
        changed=lambda: bool(different()),
        restore=restore,
    )
