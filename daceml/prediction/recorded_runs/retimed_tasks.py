"""What each task of a device would take elsewhere, how that was found, and the same by kinds of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from daceml.profiling.kernel_class import CLASSES, KernelClass
from daceml.simulation.graph import Floats, TaskGraph

Method = Literal[
    "same device",
    "wave scaling",
    "measured",
    "learned",
    "scaled",
    "references",
    "roofline",
    "rates",
    "link",
    "none",
]
"""As recorded; Habitat's equations; the three bases of a source's estimates; a ratio of rooflines of what the
operation does, corrected by other runs that were recorded on both devices; that ratio alone; one of rates,
where nobody knows what it does; of links; nothing."""


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A time on the destination, and how it was found.

    Attributes:
        low_us, high_us: nine in ten are between them.
        reason: why this method.
        outside: why what the method knows does not reach here, "" where it does.
        notes: what was not known and what stood in for it.
    """

    duration_us: float
    low_us: float
    high_us: float
    method: Method
    reason: str
    outside: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RetimedTask(Guess):
    """One task of a device; `reason` also says why surer methods were not taken.

    Attributes:
        task: its index in the graph.
        operator: of the framework that led to it, "" where nobody knows.
    """

    task: int
    name: str
    operator: str
    kind: KernelClass
    recorded_us: float


@dataclass(frozen=True, kw_only=True)
class ClassTime:
    """All tasks of one kind in a step: busy time, not counting what lies between them."""

    kind: KernelClass
    count: float
    recorded_us: float
    duration_us: float
    low_us: float
    high_us: float
    methods: tuple[Method, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Retiming:
    """A graph's device tasks on another device.

    Attributes:
        graph: as it was recorded.
    """

    graph: TaskGraph
    tasks: tuple[RetimedTask, ...]

    def durations_us(self, side: Literal["likely", "fast", "slow"]) -> Floats:
        """[n] of all tasks of the graph; those of threads as they were."""
        found = self.graph.tasks.duration_us.copy()
        for one in self.tasks:
            found[one.task] = {"likely": one.duration_us, "fast": one.low_us, "slow": one.high_us}[side]
        return found

    @property
    def steps(self) -> int:
        """How many steps have work on a device; 1 where none is marked."""
        step = self.graph.tasks.step[[one.task for one in self.tasks]]
        return max(len(np.unique(step[step >= 0])), 1)

    @property
    def counted(self) -> tuple[RetimedTask, ...]:
        """Tasks of steps; all where no task belongs to one."""
        step = self.graph.tasks.step
        inside = tuple(one for one in self.tasks if step[one.task] >= 0)
        return inside or self.tasks

    def by_class(self) -> tuple[ClassTime, ...]:
        """Per step."""
        return by_class(self.counted, self.steps)


def by_class(tasks: Sequence[RetimedTask], steps: int) -> tuple[ClassTime, ...]:
    """Of all steps together, for one of them, in the order of `CLASSES`."""
    found: list[ClassTime] = []
    for kind in CLASSES:
        mine = [one for one in tasks if one.kind == kind]
        if mine:
            found.append(_together(kind, mine, steps))
    return tuple(found)


def _together(kind: KernelClass, tasks: Sequence[RetimedTask], steps: int) -> ClassTime:
    """Limits add up as if all tasks of a kind were wrong in the same way: they mostly are."""
    return ClassTime(
        kind=kind,
        count=len(tasks) / steps,
        recorded_us=sum(one.recorded_us for one in tasks) / steps,
        duration_us=sum(one.duration_us for one in tasks) / steps,
        low_us=sum(one.low_us for one in tasks) / steps,
        high_us=sum(one.high_us for one in tasks) / steps,
        methods=tuple(dict.fromkeys(one.method for one in tasks)),
    )
