"""Why devices compute nothing: what the next kernel waits for, whenever no kernel runs.

From each kernel that ends such a time, a walk goes back over what made each task start when it did, as along
the critical path, and every stretch of it counts as what it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from daceml.simulation.analysis.breakdown import merged
from daceml.simulation.analysis.critical_path import NONE, binding
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.task import EdgeKind, Phase, TaskKind

HOST = "host: the next launch comes late"
LATENCY = "launch latency"
SYNCHRONIZATION = "synchronization: the host waited"
COPIES = "copies and memsets"
COMMUNICATION = "communication"
LOADING = "data loading"
STREAMS = "dependencies and gaps of streams"
EARLIER = "work from before the recording"

_OF_TASK = {
    TaskKind.COPY: COPIES, TaskKind.MEMSET: COPIES, TaskKind.COLLECTIVE: COMMUNICATION,
    TaskKind.DATA: LOADING, TaskKind.KERNEL: STREAMS,
}  # fmt: skip
_OF_EDGE = {
    EdgeKind.LAUNCH: LATENCY, EdgeKind.SYNC: SYNCHRONIZATION, EdgeKind.HANDOVER: HOST, EdgeKind.QUEUE: HOST,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Idle:
    """Time in which no kernel runs on any device, microseconds.

    Attributes:
        by_reason_us: the largest first. Where the host waited for the device, its launches up to the next
            kernel count as synchronization.
    """

    total_us: float
    by_reason_us: dict[str, float]


def idle(schedule: Schedule) -> Idle | None:
    """From time zero to the end of the run; None of a run without kernels."""
    graph = schedule.graph
    kernels = np.flatnonzero((graph.tasks.kind == TaskKind.KERNEL) & graph.on_device())
    if not len(kernels):
        return None
    first = kernels[np.argsort(schedule.start_us[kernels], kind="stable")]
    starts_us = schedule.start_us[first]
    sums: dict[str, float] = {}
    since_us = 0.0
    for begin_us, end_us in merged(schedule.start_us[kernels], schedule.end_us[kernels]).tolist():
        if begin_us > since_us:
            task = int(first[np.searchsorted(starts_us, begin_us)])
            _add(sums, _reasons(schedule, task, since_us, begin_us, by_end=False))
        since_us = end_us
    if schedule.makespan_us > since_us:
        task = int(np.argmax(schedule.end_us))
        _add(sums, _reasons(schedule, task, since_us, schedule.makespan_us, by_end=True))
    ordered = dict(sorted(sums.items(), key=lambda item: -item[1]))
    return Idle(total_us=sum(ordered.values()), by_reason_us=ordered)


def _add(sums: dict[str, float], found: Iterable[tuple[str, float]]) -> None:
    for reason, time_us in found:
        sums[reason] = sums.get(reason, 0.0) + time_us


def _reasons(
    schedule: Schedule, task: int, since_us: float, until_us: float, *, by_end: bool
) -> Iterable[tuple[str, float]]:
    """The stretches from a moment back to an earlier one, the last one first."""
    rows: list[tuple[str, float]] = []
    while until_us > since_us:
        if by_end:
            begin_us = min(float(schedule.start_us[task]), until_us)
            rows.append((_task_reason(schedule, task), until_us - max(begin_us, since_us)))
            until_us = begin_us
        source, edge, from_start = binding(schedule, task)
        left_us = 0.0
        if source != NONE:
            left_us = float((schedule.start_us if from_start else schedule.end_us)[source])
        if until_us > since_us:
            begin_us = max(min(left_us, until_us), since_us)
            rows.append((_wait_reason(schedule, task, source, edge), until_us - begin_us))
            until_us = begin_us
        if edge != NONE and schedule.graph.edges.kind[edge] == EdgeKind.SYNC:
            rows = [(SYNCHRONIZATION if reason in (HOST, LATENCY) else reason, us) for reason, us in rows]
        if source == NONE:
            break
        task, by_end = source, not from_start
        until_us = min(until_us, left_us)
    return ((reason, time_us) for reason, time_us in rows if time_us > 0)


def _task_reason(schedule: Schedule, task: int) -> str:
    tasks = schedule.graph.tasks
    if tasks.phase[task] == Phase.DATA:
        return LOADING
    return _OF_TASK.get(TaskKind(int(tasks.kind[task])), HOST)


def _wait_reason(schedule: Schedule, task: int, source: int, edge: int) -> str:
    """Of the time between a task and what it waited for."""
    graph = schedule.graph
    if edge != NONE:
        return _OF_EDGE.get(EdgeKind(int(graph.edges.kind[edge])), STREAMS)
    if not TaskKind(int(graph.tasks.kind[task])).on_device:
        return LOADING if graph.tasks.phase[task] == Phase.DATA else HOST
    return EARLIER if source == NONE else STREAMS
