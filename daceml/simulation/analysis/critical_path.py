"""The critical path: the chain of tasks and waits that decides when the last task ends; and slack."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from daceml.simulation import loops
from daceml.simulation.compiled import engine_for, run
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.task import EdgeKind, TaskKind

NONE = -1


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of the critical path.

    Attributes:
        task: that runs, or that is waited for to start.
        kind: "task" where it runs; "gap" after the task before on its lane; "lag" of an edge into it, and
            "release" where a task that nothing precedes starts late.
        edge: number of the edge by which the task was reached, -1 where that is its lane or nothing.
    """

    start_us: float
    end_us: float
    task: int
    kind: Literal["task", "gap", "lag", "release"]
    edge: int = NONE

    @property
    def duration_us(self) -> float:
        """How long it is."""
        return self.end_us - self.start_us


@dataclass(frozen=True, kw_only=True, eq=False)
class CriticalPath:
    """What decides the makespan of a schedule.

    Attributes:
        segments: from time zero to the end of the last task; each begins where the one before it ended.
    """

    schedule: Schedule
    segments: tuple[Segment, ...]

    @cached_property
    def tasks(self) -> tuple[int, ...]:
        """The tasks on the path, first to last."""
        return tuple(segment.task for segment in self.segments if segment.kind == "task")

    @property
    def length_us(self) -> float:
        """From its first moment to its last: the makespan."""
        return self.segments[-1].end_us - self.segments[0].start_us if self.segments else 0.0

    def spent_on(self, segment: Segment) -> str:
        """What a segment is: the kind of its task ("kernel"), the edge's and "lag", "gap" or "release"."""
        graph = self.schedule.graph
        if segment.kind == "task":
            return _words(TaskKind(int(graph.tasks.kind[segment.task])))
        if segment.kind == "lag":
            return f"{_words(EdgeKind(int(graph.edges.kind[segment.edge])))} lag"
        return segment.kind


def _words(kind: IntEnum) -> str:
    return kind.name.lower().replace("_", " ")


def critical_path(schedule: Schedule) -> CriticalPath:
    """Walk back from the task that ends last over what made each task start when it did.

    Where several things did, the order of the lane goes before edges, and those in the order of the graph;
    of tasks that end together, the first of the graph is the last of the path. Where a task starts before
    the end of what it was waiting for (a gap or lag below zero), the path leaves that one at this moment.
    """
    backwards: list[Segment] = []
    task = int(np.argmax(schedule.end_us)) if len(schedule) else NONE
    until_us = schedule.makespan_us
    by_end = True  # whether the end of the task is on the path, and not its start only
    while task != NONE:
        source, edge, from_start = binding(schedule, task)
        if by_end:
            since_us = min(float(schedule.start_us[task]), until_us)
            segment = Segment(start_us=since_us, end_us=until_us, task=task, kind="task", edge=edge)
            backwards.append(segment)
            until_us = since_us
        if source == NONE:
            kind, since_us = "release", 0.0
        else:
            kind = "gap" if edge == NONE else "lag"
            since_us = float((schedule.start_us if from_start else schedule.end_us)[source])
        if since_us < until_us:
            segment = Segment(start_us=since_us, end_us=until_us, task=task, kind=kind, edge=edge)
            backwards.append(segment)
            until_us = since_us
        task, by_end = source, not from_start
    return CriticalPath(schedule=schedule, segments=tuple(reversed(backwards)))


def binding(schedule: Schedule, task: int) -> tuple[int, int, bool]:
    """What made a task start: the task it waited for, the edge if by one, whether its start sufficed."""
    structure, tasks, edges = schedule.graph.structure, schedule.graph.tasks, schedule.graph.edges
    start_us, end_us = schedule.start_us, schedule.end_us
    start = start_us[task]
    before = int(schedule.before[task])
    if before != NONE:
        gap_us = tasks.gap_us[task] if structure.before[task] != NONE else 0.0
        if end_us[before] + gap_us == start:
            return before, NONE, False
    for edge in structure.in_edge[structure.in_start[task] : structure.in_start[task + 1]].tolist():
        source, from_start = int(edges.source[edge]), bool(edges.from_start[edge])
        since_us = start_us[source] if from_start else end_us[source]
        if since_us + edges.lag_us[edge] == start:
            return source, edge, from_start
    return NONE, NONE, False


def slack_us(schedule: Schedule) -> NDArray[np.float64]:
    """[n] how much later each task could start without moving the end of the last, all others free to move.

    It is exactly zero on the critical path. Lanes that are not ordered keep the order that they chose.
    """
    structure, tasks, edges = schedule.graph.structure, schedule.graph.tasks, schedule.graph.edges
    slack = schedule.makespan_us - schedule.end_us
    has_gap = structure.before >= 0
    inputs = (
        *(
            schedule.order,
            schedule.before,
            has_gap,
            structure.in_start,
            structure.in_edge,
            structure.in_source,
        ),
        *(tasks.gap_us, edges.lag_us, edges.from_start, schedule.start_us, schedule.end_us),
    )
    run(loops.slack, inputs, (slack,), engine=engine_for(len(schedule)))
    return slack
