"""Programs of others that look into ours, and end in time for what they have said to be read."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CLOSING_S = 4.0  # for reading what a tool has said, before the step is ended


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a program has printed, and how it ended.

    Attributes:
        code: its exit code; None where time was up.
    """

    text: str
    code: int | None

    @property
    def end(self) -> str:
        """In words."""
        return "was ended, since time was up" if self.code is None else f"ended with exit code {self.code}"


def output_within(command: Sequence[str], end: float, environment: Mapping[str, str] | None = None) -> Said:
    """Run a program until it ends, or until a moment on the monotonic clock."""
    limit_s = None if end == float("inf") else max(1.0, end - time.monotonic())
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
            env=None if environment is None else dict(environment),
        )
    except subprocess.TimeoutExpired as late:
        return Said(text=(late.stdout or b"").decode(errors="replace"), code=None)
    return Said(text=done.stdout.decode(errors="replace"), code=done.returncode)
