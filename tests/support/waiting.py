"""Waiting for another thread."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; it fails after a minute."""
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
