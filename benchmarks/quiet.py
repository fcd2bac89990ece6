"""The priority of a process that measures."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def claim_priority() -> None:
    """Ask the scheduler to favour this process and its session; without the right to ask, change nothing.

    Where the kernel groups tasks by session, `nice` does nothing between sessions; the group's own value
    does.
    """
    with suppress(OSError):
        os.setsid()
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("-20", encoding="ascii")
