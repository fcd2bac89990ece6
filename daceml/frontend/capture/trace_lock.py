"""torch.export patches torch for all threads while it runs: one thread traces, the others wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

_changed = threading.Condition()
_thread: list[int] = []
"""The thread that traces, once for each trace within a trace."""

_running: dict[int, int] = {}
"""Threads that run eager code of cut modules, and how deep they are in it."""

_PATIENCE_S = 60.0  # for such code, which may wait in turn for the thread that wants to trace


@contextmanager
def tracing() -> Generator[None]:
    """Keep other threads meanwhile from tracing, and from running eager code of cut modules."""
    here = threading.get_ident()
    with _changed:
        depth = 0
        if not _thread or _thread[-1] != here:
            depth = _running.pop(here, 0)  # it waits, and so may others in its place
            _changed.notify_all()
            until = time.monotonic() + _PATIENCE_S
            while _thread or (_running and time.monotonic() < until):
                _changed.wait(None if _thread else _PATIENCE_S)
        _thread.append(here)
    try:
        yield
    finally:
        with _changed:
            _thread.pop()
            if depth:
                _running[here] = depth
            _changed.notify_all()


@contextmanager
def running_eagerly() -> Generator[None]:
    """Run eager code while no other thread traces."""
    here = threading.get_ident()
    with _changed:
        while _thread and _thread[-1] != here:
            _changed.wait()
        _running[here] = _running.get(here, 0) + 1
    try:
        yield
    finally:
        with _changed:
            _running[here] -= 1
            if not _running[here]:
                del _running[here]
                _changed.notify_all()


def tracing_here() -> bool:
    """Whether torch's tracing, if any, is that of this thread.

    torch's own flag is one for all threads; another thread that calls a compiled module meanwhile is no part
    of what is traced.
    """
    return not _thread or _thread[-1] == threading.get_ident()
