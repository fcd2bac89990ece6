"""What limits a run next: how long a step would take if one kind of work cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daceml.simulation.analysis.steps import step_times
from daceml.simulation.engine import Schedule, resimulate
from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.task import Phase, TaskKind


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A kind of work, and the most that any improvement of it can bring.

    Attributes:
        step_us: of the run in which this work is free.
        saved: that, as a share of a step.
    """

    what: str
    step_us: float
    saved: float


# What could be made faster -> its tasks, and whether the time that threads spend before them counts as well.
WORK: dict[str, tuple[Callable[[TaskGraph], Mask], bool]] = {
    "kernels": (lambda g: g.tasks.kind == TaskKind.KERNEL, False),
    "copies and memsets": (lambda g: np.isin(g.tasks.kind, (TaskKind.COPY, TaskKind.MEMSET)), False),
    "communication": (lambda g: g.tasks.kind == TaskKind.COLLECTIVE, False),
    "data loading": (lambda g: g.tasks.kind == TaskKind.DATA, True),
    "the framework and its launches": (
        lambda g: (g.tasks.kind == TaskKind.CALL) & (g.tasks.phase != Phase.DATA),
        True,
    ),
    "operators": (lambda g: g.tasks.kind == TaskKind.OPERATOR, False),
    "what the framework does between operators": (
        lambda g: (g.tasks.kind == TaskKind.OPERATOR) & (g.tasks.gap_us > 0), True
    ),
}  # fmt: skip


def limits(schedule: Schedule) -> list[Limit]:
    """One for each kind of work that the run has, the largest first."""
    graph, whole_us = schedule.graph, step_times(schedule).step_us
    found: list[Limit] = []
    for what, (tasks, with_gaps) in WORK.items():
        mask = tasks(graph)
        if not mask.any():
            continue
        only_gaps = what.startswith("what the framework")
        duration_us = graph.tasks.duration_us if only_gaps else np.where(mask, 0.0, graph.tasks.duration_us)
        gap_us = np.where(mask, 0.0, graph.tasks.gap_us) if with_gaps else graph.tasks.gap_us
        step_us = step_times(
            resimulate(schedule, graph.with_times(duration_us=duration_us, gap_us=gap_us))
        ).step_us
        saved = max(1.0 - step_us / whole_us, 0.0) if whole_us > 0 else 0.0
        found.append(Limit(what=what, step_us=step_us, saved=saved))
    return sorted(found, key=lambda limit: -limit.saved)
