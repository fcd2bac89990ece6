"""Python's search for cycles, held where work makes many objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Generator[None]:
    """Hold Python's cyclic garbage collector; it goes on afterwards if it was on.

    A compilation, or a file with a million events, makes objects that live until its end; every full
    collection would walk them all, with everything that torch and SymPy hold.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
