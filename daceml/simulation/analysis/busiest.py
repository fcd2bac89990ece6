"""Kernels, operators and layers that take most of a run, and how much communication hides behind work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daceml.simulation.analysis.breakdown import common_us, length_us, merged
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import NOTHING, Ints, Mask, TaskGraph
from daceml.simulation.task import TaskKind

_WORK = (TaskKind.KERNEL, TaskKind.COPY, TaskKind.MEMSET, TaskKind.COLLECTIVE)


@dataclass(frozen=True, kw_only=True)
class Busy:
    """A kernel, an operator or a layer.

    Attributes:
        time_us: of its work on devices, or of its operators where a run has no device; what overlaps counts
            twice.
        share: of all such work.
        bytes_per_s: of copies, memsets and collectives whose size is known; None elsewhere.
    """

    name: str
    calls: int
    time_us: float
    share: float
    bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Communication of a schedule, microseconds.

    Attributes:
        hidden_us: during which some kernel runs as well.
    """

    communication_us: float
    hidden_us: float


def busiest(graph: TaskGraph, most: int = 5) -> dict[str, tuple[Busy, ...]]:
    """Kernels, operators and layers, the one that takes longest first; none where no name is known."""
    work = np.isin(graph.tasks.kind, _WORK) & graph.on_device()
    if not work.any():
        work = graph.tasks.kind == TaskKind.OPERATOR
    columns = {"kernel": graph.tasks.name, "operator": graph.tasks.operator, "layer": graph.tasks.layer}
    found = {what: _busiest(graph, work, column, most) for what, column in columns.items()}
    return {what: rows for what, rows in found.items() if rows}


def overlap(schedule: Schedule) -> Overlap | None:
    """None of a run that does not communicate."""
    kind = schedule.graph.tasks.kind
    sends, computes = kind == TaskKind.COLLECTIVE, kind == TaskKind.KERNEL
    if not sends.any():
        return None
    first = merged(schedule.start_us[sends], schedule.end_us[sends])
    second = merged(schedule.start_us[computes], schedule.end_us[computes])
    return Overlap(communication_us=length_us(first), hidden_us=common_us(first, second))


def _busiest(graph: TaskGraph, work: Mask, column: Ints, most: int) -> tuple[Busy, ...]:
    chosen = work & (column != NOTHING)
    tasks, count = graph.tasks, len(graph.names)
    time_us = np.bincount(column[chosen], tasks.duration_us[chosen], minlength=count)
    calls = np.bincount(column[chosen], minlength=count)
    size_bytes = np.bincount(column[chosen], tasks.size_bytes[chosen], minlength=count)  # NaN: not known
    whole_us = float(tasks.duration_us[work].sum())
    return tuple(
        Busy(
            name=graph.names[name],
            calls=int(calls[name]),
            time_us=float(time_us[name]),
            share=float(time_us[name]) / whole_us,
            bytes_per_s=float(size_bytes[name] / time_us[name] * 1e6) if size_bytes[name] > 0 else None,
        )
        for name in np.argsort(-time_us, kind="stable")[:most].tolist()
        if time_us[name] > 0
    )
