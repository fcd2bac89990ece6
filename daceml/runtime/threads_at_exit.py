"""The end of a process while threads of torch's process groups still hold Python objects."""

from __future__ import annotations

import atexit
import time
from functools import cache

_WAIT_S = 0.1


@cache
def let_threads_finish() -> None:
    """Let Gloo's threads release what they hold before this process's interpreter goes.

    A thread of Gloo that has finished a collective releases the Python objects of that call, and waits for
    the interpreter's lock to do so. Where a script ends meanwhile, Python ends a thread that waits, within a
    destructor of C++, and the process aborts ("terminate called without an active exception", torch 2.13).
    A pause without the lock lets them through.
    """
    atexit.register(time.sleep, _WAIT_S)
