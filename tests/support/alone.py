"""Tests that measure run alone: the workers of one run stand still meanwhile (mark `alone`)."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Generator[None]:
    """One test of a run whose workers share `folder`: beside others, or `alone`.

    A test that waits to be alone holds the gate, so that no further test begins before it.
    """
    with (folder / "gate.lock").open("w") as gate, (folder / "tests.lock").open("w") as tests:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(tests, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
