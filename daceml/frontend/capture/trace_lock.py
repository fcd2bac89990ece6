"""torch.export patches torch for all threads while it runs: one thread traces, the others wait."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

_lock = threading.RLock()
_thread: list[int] = []


@contextmanager
def tracing() -> Generator[None]:
    """Keep other threads from tracing meanwhile."""
    with _lock:
        _thread.append(threading.get_ident())
        try:
            yield
        finally:
            _thread.pop()


def tracing_here() -> bool:
    """Whether torch's tracing, if any, is that of this thread.

    torch's own flag is one for all threads; another thread that calls a compiled module meanwhile is no part
    of what is traced.
    """
    return not _thread or _thread[-1] == threading.get_ident()
