"""How much of the machine others used while something was measured, from /proc/stat."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class CpuTimes:
    """Seconds summed over cores since the machine started; stolen time counts as busy."""

    busy_s: float
    total_s: float


def cpu_times(stat: str | None = None, *, cores: Collection[int] = ()) -> CpuTimes:
    """Read /proc/stat.

    Args:
        stat: its text; None reads it.
        cores: whose times are added up; none: all, by the first line.
    Source: proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice, where guest is in
    user.
    """
    text = Path("/proc/stat").read_text(encoding="ascii") if stat is None else stat
    first, *others = (line.split() for line in text.split("\n"))
    wanted = {f"cpu{core}" for core in cores}
    lines = [words[1:9] for words in others if words and words[0] in wanted] or [first[1:9]]
    fields = [sum(map(int, column)) for column in zip(*lines, strict=True)]
    user, nice, system, idle, iowait, irq, softirq, steal = fields + [0] * (8 - len(fields))
    busy = user + nice + system + irq + softirq + steal
    return CpuTimes(busy_s=busy / TICKS_PER_S, total_s=(busy + idle + iowait) / TICKS_PER_S)


def foreign_share(before: CpuTimes, after: CpuTimes, own_s: float) -> float:
    """The part of those cores (0 to 1) busy with something else, while `own_s` CPU seconds were ours."""
    total_s = after.total_s - before.total_s
    if total_s <= 0.0:
        return 0.0  # shorter than one tick of the kernel's clock: nothing can be said
    return min(1.0, max(0.0, (after.busy_s - before.busy_s - own_s) / total_s))


class Others:
    """Whoever else runs on the cores that this process may use, watched from now on."""

    def __init__(self) -> None:
        self._before, self._own_s = _machine_times(), _own_s()

    def share(self) -> float:
        """The part of these cores (0 to 1) that they have used since; 0 where nobody says."""
        now = _machine_times()
        if self._before is None or now is None:
            return 0.0
        return foreign_share(self._before, now, _own_s() - self._own_s)


def crowded(share: float, threads: int) -> bool:
    """Whether others, who use a share of the cores of this process, leave fewer than there are threads.

    Cores that share their units count as whole ones; a quota of time is not looked at.
    """
    return (1 - share) * len(os.sched_getaffinity(0)) < threads


def _machine_times() -> CpuTimes | None:
    try:
        return cpu_times(cores=os.sched_getaffinity(0))
    except OSError:  # no /proc
        return None


def _own_s() -> float:
    """Of this process, and of compilers that it has waited for."""
    told = os.times()
    return time.process_time() + told.children_user + told.children_system
