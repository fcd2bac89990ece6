"""What every program needs of the compiler, made while Python is still busy."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from daceml.errors import DacemlError
from daceml.toolchain.cache import Cache


def warm(cache: Cache) -> Thread | None:
    """Let the compiler make what every program needs, once for each machine, while Python is still busy.

    What fails here fails again, and is reported, where it is needed.

    Returns:
        who does it; None where this process did it before.
    """
    with _warmed_lock:
        if cache.root in _warmed:
            return None
        _warmed.add(cache.root)
    thread = Thread(target=_make_ready, args=(cache,), name="daceml-warm")
    thread.start()
    return thread


def _make_ready(cache: Cache) -> None:
    from daceml.runtime.launcher import make_ready

    with suppress(DacemlError, OSError):
        make_ready(cache)


_warmed_lock = Lock()

_warmed: set[Path] = set()
