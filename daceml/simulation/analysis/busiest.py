"""Kernels, operators and layers that take most of a run, and how much communication hides behind work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daceml.simulation.analysis.breakdown import common_us, length_us, merged
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import NOTHING, Floats, Ints, Mask, TaskGraph
from daceml.simulation.task import TaskKind

_KNOWN = 0.9  # of the time of a name: amounts of less are no rate of it
_WORK = (TaskKind.KERNEL, TaskKind.COPY, TaskKind.MEMSET, TaskKind.COLLECTIVE)


@dataclass(frozen=True, kw_only=True)
class Busy:
    """A kernel, an operator or a layer.

    Attributes:
        tasks: kernels and copies, or operators where a run has no device.
        time_us: of its work on devices, or of its operators where a run has no device; what overlaps counts
            twice.
        share: of all such work.
        flops_per_s, bytes_per_s: achieved; None where amounts of a tenth of the time or more are not known.
    """

    name: str
    tasks: int
    time_us: float
    share: float
    flops_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Amounts:
    """What each of n tasks computes and moves; NaN where that is not known.

    Attributes:
        shapes: whether the run has shapes of operands, from which most amounts follow.
    """

    flops: Floats
    bytes_moved: Floats
    shapes: bool = True

    @classmethod
    def of_sizes(cls, graph: TaskGraph) -> Amounts:
        """Sizes of copies, memsets and collectives alone."""
        return cls(flops=np.full(len(graph), np.nan), bytes_moved=graph.tasks.size_bytes)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Communication of a schedule, microseconds.

    Attributes:
        hidden_us: during which some kernel runs as well.
    """

    communication_us: float
    hidden_us: float


def busiest(
    graph: TaskGraph, most: int = 5, *, amounts: Amounts | None = None
) -> dict[str, tuple[Busy, ...]]:
    """Kernels, operators and layers, the one that takes longest first; none where no name is known.

    Args:
        amounts: of all tasks; None knows the sizes of copies, memsets and collectives.
    """
    amounts = Amounts.of_sizes(graph) if amounts is None else amounts
    tasks = graph.tasks
    work = np.isin(tasks.kind, _WORK) & graph.on_device()
    columns = {"kernel": tasks.name, "operator": tasks.operator, "layer": tasks.layer}
    if not work.any():
        work = tasks.kind == TaskKind.OPERATOR
        columns = {"operator": tasks.name, "layer": tasks.layer}
    found = {what: _busiest(graph, work, column, most, amounts) for what, column in columns.items()}
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


def _busiest(graph: TaskGraph, work: Mask, column: Ints, most: int, amounts: Amounts) -> tuple[Busy, ...]:
    chosen = work & (column != NOTHING)
    tasks, count = graph.tasks, len(graph.names)
    time_us = np.bincount(column[chosen], tasks.duration_us[chosen], minlength=count).astype(np.float64)
    tasks_of = np.bincount(column[chosen], minlength=count)
    whole_us = float(tasks.duration_us[work].sum())
    flops = _rates(tasks.duration_us, time_us, column, chosen, amounts.flops)
    moved = _rates(tasks.duration_us, time_us, column, chosen, amounts.bytes_moved)
    return tuple(
        Busy(
            name=graph.names[name],
            tasks=int(tasks_of[name]),
            time_us=float(time_us[name]),
            share=float(time_us[name]) / whole_us,
            flops_per_s=float(flops[name]) if flops[name] > 0 else None,
            bytes_per_s=float(moved[name]) if moved[name] > 0 else None,
        )
        for name in np.argsort(-time_us, kind="stable")[:most].tolist()
        if time_us[name] > 0
    )


def _rates(duration_us: Floats, time_us: Floats, column: Ints, chosen: Mask, amount: Floats) -> Floats:
    """[names] amounts a second, NaN where they are not known of most of the time."""
    known = chosen & np.isfinite(amount)
    known_us = np.bincount(column[known], duration_us[known], minlength=len(time_us))
    sums = np.bincount(column[known], amount[known], minlength=len(time_us))
    enough = (known_us > _KNOWN * time_us) & (known_us > 0)
    return np.where(enough, sums / np.where(enough, known_us, 1.0) * 1e6, np.nan)
