"""Polling many dicts and lists at once: is the same object still in each place?"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from daceml.config import config
from daceml.runtime.launcher import build_launcher
from daceml.toolchain.cache import Cache

WatchedDict = tuple[dict[Any, Any], tuple[Any, ...]]
"""A dict, and the keys whose objects must stay; other objects may change, but no key may come or go."""


def container_watch(dicts: Sequence[WatchedDict], lists: Sequence[list[Any]] = ()) -> Callable[[], bool]:
    """A function that says whether every dict and list still holds what it held when this was called, by
    identity.

    The objects are kept alive as long as the function.
    """
    held = [(d, keys, tuple(d[k] for k in keys), len(d)) for d, keys in dicts]
    items = [(entries, tuple(entries)) for entries in lists]
    return _Watch(held, items)


_Held = Sequence[tuple[dict[Any, Any], tuple[Any, ...], tuple[Any, ...], int]]
_Items = Sequence[tuple[list[Any], tuple[Any, ...]]]


class _Watch:
    """Hands its list to native code when it is asked first: a compiler may still be busy with that code."""

    def __init__(self, held: _Held, items: _Items) -> None:
        self._held, self._items = held, items
        self._check: Callable[[], bool] | None = None

    def __call__(self) -> bool:
        if self._check is None:
            self._check = self._native_check()
        return self._check()

    def _native_check(self) -> Callable[[], bool]:
        native = _native()
        watch = native.daceml_watch_new()
        if watch is None:
            return partial(_unchanged, self._held, self._items)
        # not at the end of the process: what is called then still asks the watch
        weakref.finalize(self, native.daceml_watch_delete, watch).atexit = False
        for members, keys, objects, size in self._held:
            native.daceml_watch_dict(watch, id(members), size)
            for key, value in zip(keys, objects, strict=True):
                native.daceml_watch_entry(watch, id(key), id(value))
        for entries, objects in self._items:
            native.daceml_watch_list(watch, id(entries))
            for value in objects:
                native.daceml_watch_entry(watch, None, id(value))
        return partial(native.daceml_watch_unchanged, ctypes.c_void_p(watch))


def _unchanged(held: _Held, items: _Items) -> bool:
    for members, keys, objects, size in held:
        if len(members) != size:
            return False
        if any(members.get(k) is not v for k, v in zip(keys, objects, strict=True)):
            return False
    return all(
        len(entries) == len(objects) and all(a is b for a, b in zip(entries, objects, strict=True))
        for entries, objects in items
    )


@lru_cache(maxsize=1)
def _native() -> ctypes.PyDLL:
    """The launcher's library once more, by a handle that keeps the GIL."""
    native = ctypes.PyDLL(str(build_launcher(Cache(config().cache_folder))))
    pointer = ctypes.c_void_p
    native.daceml_watch_new.restype = pointer
    native.daceml_watch_delete.argtypes = [pointer]
    native.daceml_watch_dict.argtypes = [pointer, pointer, ctypes.c_ssize_t]
    native.daceml_watch_list.argtypes = [pointer, pointer]
    native.daceml_watch_entry.argtypes = [pointer, pointer, pointer]
    native.daceml_watch_unchanged.argtypes = [pointer]
    native.daceml_watch_unchanged.restype = ctypes.c_bool  # a Python function in between would cost as much
    return native
