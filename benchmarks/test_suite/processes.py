"""A command with all that it starts: how long it ran, and how much memory it held at most."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command that has ended.

    Attributes:
        memory_bytes: the largest sum of the resident memory of its processes, seen once a second. What
            several of them share counts for each.
    """

    exit_code: int
    wall_s: float
    memory_bytes: int


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Ran:
    """Run a command; what it prints goes to a file."""
    start, most = time.perf_counter(), 0
    with log.open("w", encoding="utf-8") as output:
        child = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdout=output, stderr=subprocess.STDOUT
        )
        while child.poll() is None:
            most = max(most, sum(_memory_bytes(pid) for pid in _with_descendants(child.pid)))
            time.sleep(_EVERY_S)
    return Ran(exit_code=child.returncode, wall_s=time.perf_counter() - start, memory_bytes=most)


def _with_descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(") ")[2].split()
            except OSError:  # it has ended
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _memory_bytes(pid: int) -> int:
    try:
        pages = int(Path("/proc", str(pid), "statm").read_text().split()[1])
    except OSError:  # it has ended
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
