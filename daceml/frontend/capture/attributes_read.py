"""Which attributes of modules forward reads while it is traced: no other one can be part of the trace."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import nn

_COPIES = frozenset({"__reduce__", "__reduce_ex__", "__getstate__", "__deepcopy__", "__copy__"})
_OWN = frozenset(
    vars(nn.Module)[name].__code__
    for name in ("__getattr__", "__setattr__", "__delattr__", "register_buffer")
)
"""torch's methods that look into a module's dict for one name, which was read, or is none to be read."""


class AttributesRead:
    """The names that were read, of each module.

    Attributes:
        everything: whether reads may have been missed.
    """

    def __init__(self) -> None:
        self.everything = False
        self._names: dict[int, set[str]] = {}
        self._whole: set[int] = set()
        self._alive: list[nn.Module] = []

    def note(self, module: nn.Module, name: str, *, whole: bool) -> None:
        """Note that a name of a module was read, or its dict as a whole."""
        key = id(module)
        if key not in self._names:
            self._names[key] = set()
            self._alive.append(module)  # ids stay theirs
        self._names[key].add(name)
        if whole:
            self._whole.add(key)

    def join(self, view: nn.Module, module: nn.Module) -> None:
        """Take what was read of a view of a module for read of the module."""
        self._names.setdefault(id(module), set()).update(self._names.get(id(view), ()))
        if id(view) in self._whole:
            self._whole.add(id(module))

    def names(self, module: nn.Module) -> frozenset[str] | None:
        """The names that were read of a module; None for any."""
        if self.everything or id(module) in self._whole:
            return None
        return frozenset(self._names.get(id(module), ()))


@contextmanager
def recorded_reads() -> Generator[AttributesRead]:
    """Record the attributes of modules that this thread reads within the block."""
    read, thread = AttributesRead(), threading.get_ident()
    outer = nn.Module.__dict__.get("__getattribute__")
    look_up: Any = outer or object.__getattribute__

    def recording(module: nn.Module, name: str) -> Any:
        if threading.get_ident() == thread:
            whole = name in _COPIES or (name == "__dict__" and _caller() not in _OWN)
            read.note(module, name, whole=whole)
        return look_up(module, name)

    def stop(_: Any = None) -> None:
        """Dynamo takes no modules with a method for attributes."""
        read.everything = True
        _restore(outer)

    from torch._dynamo.callback import callback_handler

    methods: Any = nn.Module
    methods.__getattribute__ = recording
    callback_handler.register_start_callback(stop)
    try:
        yield read
    finally:
        callback_handler.remove_start_callback(stop)
        _restore(outer)


def _caller() -> types.CodeType:
    """The code that reads an attribute, two frames up."""
    return sys._getframe(2).f_code  # pyright: ignore[reportPrivateUsage]


def _restore(outer: Any) -> None:
    methods: Any = nn.Module
    if outer is not None:
        methods.__getattribute__ = outer
    elif "__getattribute__" in nn.Module.__dict__:
        del methods.__getattribute__
