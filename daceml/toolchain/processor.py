"""Which processor this is."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_model(cpuinfo: str | None = None) -> str:
    """The processor's name from /proc/cpuinfo, or the architecture where it has no such line."""
    if cpuinfo is None:
        path = Path("/proc/cpuinfo")
        cpuinfo = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
