"""Calls of some C functions from Python code, noticed before they run."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from daceml.config import config
from daceml.runtime.launcher import build_launcher, is_built
from daceml.toolchain.cache import Cache


@contextmanager
def watched_calls(
    functions: Iterable[Any], names: Iterable[str], notice: Callable[[types.FrameType, Any], None]
) -> Generator[None]:
    """Call `notice` before each call of one of `functions`, or of a C function or method with one of `names`.

    It covers this thread. A profiler of the user's rests meanwhile. What `notice` raises, the call raises.

    Args:
        notice: is given the frame that calls and the function. It may be asked about other functions as well.
    """
    before: Any = sys.getprofile()
    if not _watch_natively(list(functions), list(names), notice):

        def profile(frame: types.FrameType, event: str, function: Any) -> None:
            if event == "c_call":
                notice(frame, function)

        sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        if hasattr(before, "enable"):  # cProfile
            before.enable()
        elif before is not None:
            sys.setprofile(before)


def _watch_natively(functions: list[Any], names: list[str], notice: Callable[..., None]) -> bool:
    """Let native code choose the calls; False where it is not compiled yet, or does not know this Python."""
    if not is_built(Cache(config().cache_folder)):
        return False
    addresses = (ctypes.c_void_p * len(functions))(*map(id, functions))
    texts = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    return bool(
        _native().daceml_watch_calls(
            notice, print, print.__name__.encode(), addresses, len(functions), texts, len(names)
        )
    )


@lru_cache(maxsize=1)
def _native() -> ctypes.PyDLL:
    """The launcher's library once more, by a handle that keeps the GIL."""
    native = ctypes.PyDLL(str(build_launcher(Cache(config().cache_folder))))
    native.daceml_watch_calls.argtypes = [
        ctypes.py_object, ctypes.py_object, ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64,
        ctypes.POINTER(ctypes.c_char_p), ctypes.c_int64,
    ]  # fmt: skip
    native.daceml_watch_calls.restype = ctypes.c_int32
    return native
