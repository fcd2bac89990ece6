"""One case in a process of its own, which may crash, hang or use too much memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended.

    Attributes:
        answer: the object that it printed last; None where it printed none.
        end: why there is no answer.
        crashed: whether a signal or an exit code ended it, and not the time limit.
    """

    answer: Any = None
    end: str = ""
    crashed: bool = False


def in_a_process(
    module_and_arguments: Sequence[str], *, limit_s: float, memory_bytes: int | None = None
) -> Ended:
    """Run a Python module, and read the line of JSON that it prints last.

    Args:
        memory_bytes: of data for the process; None for no limit.
    """
    line = [sys.executable, "-W", "ignore", "-m", *module_and_arguments]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))

    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=limit_s, check=False, preexec_fn=limit
        )
    except subprocess.TimeoutExpired:
        return Ended(end=f"no answer within {limit_s:.0f} s")
    try:
        return Ended(answer=json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return Ended(end=f"exit code {done.returncode}: {done.stderr[-300:]}", crashed=True)
