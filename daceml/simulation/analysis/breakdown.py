"""Where the time goes: threads alone, devices alone, both, nobody; and by phase and kind of device work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import Floats, Ints, Mask, TaskGraph
from daceml.simulation.task import Phase, TaskKind


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Shares of a schedule's time, microseconds.

    Attributes:
        cpu_only_us: some thread works, no device does. A thread that waits for a device does not work.
        both_us: threads and devices work.
        device_only_us: some device or link works while all threads wait.
        idle_us: everybody waits, as for launches that are on their way.
        beside: what works besides threads: "devices", "network", or both.
        by_phase_us, by_kind_us: time of devices, added up over streams: overlapping work counts twice.
    """

    total_us: float
    cpu_only_us: float
    both_us: float
    device_only_us: float
    idle_us: float
    beside: str
    by_phase_us: dict[str, float]
    by_kind_us: dict[str, float]


def breakdown(schedule: Schedule) -> Breakdown:
    """That of all tasks, from time zero to the end."""
    graph = schedule.graph
    device = graph.on_device()
    cpu = merged(*_thread_work(schedule, ~device))
    devices = merged(schedule.start_us[device], schedule.end_us[device])
    cpu_us, device_us, both_us = length_us(cpu), length_us(devices), common_us(cpu, devices)
    total_us = schedule.makespan_us
    return Breakdown(
        total_us=total_us,
        cpu_only_us=cpu_us - both_us,
        both_us=both_us,
        device_only_us=device_us - both_us,
        idle_us=max(total_us - (cpu_us + device_us - both_us), 0.0),
        beside=_beside(graph, device),
        by_phase_us=_sums(graph, device, graph.tasks.phase, Phase),
        by_kind_us=_sums(graph, device, graph.tasks.kind, TaskKind),
    )


def _beside(graph: TaskGraph, device: Mask) -> str:
    network = graph.tasks.kind == TaskKind.COLLECTIVE
    if not network.any():
        return "devices"
    return "devices and network" if (device & ~network).any() else "network"


def _sums(graph: TaskGraph, mask: Mask, column: Ints, names: type[Phase | TaskKind]) -> dict[str, float]:
    sums = np.bincount(column[mask], graph.tasks.duration_us[mask], minlength=len(names))
    return {name.name.lower(): float(sums[name]) for name in names if sums[name] > 0}


def _thread_work(schedule: Schedule, cpu: Mask) -> tuple[Floats, Floats]:
    """Begin and end of what threads do: their tasks, and the gaps before those, but not their waits."""
    graph = schedule.graph
    before = graph.structure.before
    end_us, gap_us = schedule.end_us, np.maximum(graph.tasks.gap_us, 0.0)
    since_us = np.where(before >= 0, end_us[np.maximum(before, 0)], 0.0)[cpu]
    worked_us = np.minimum(since_us + gap_us[cpu], schedule.start_us[cpu])
    begins = np.concatenate([schedule.start_us[cpu], since_us])
    ends = np.concatenate([schedule.end_us[cpu], np.maximum(worked_us, since_us)])
    return begins, ends


def merged(begin_us: Floats, end_us: Floats) -> Floats:
    """[k, 2] disjoint intervals, in order, that cover what the given ones do."""
    if not len(begin_us):
        return np.zeros((0, 2))
    order = np.argsort(begin_us, kind="stable")
    begin_us, end_us = begin_us[order], np.maximum.accumulate(end_us[order])
    fresh = np.concatenate([[True], begin_us[1:] > end_us[:-1]])
    first = np.flatnonzero(fresh)
    last = np.concatenate([first[1:] - 1, [len(begin_us) - 1]])
    return np.stack([begin_us[first], end_us[last]], axis=1)


def length_us(intervals: Floats) -> float:
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def common_us(first: Floats, second: Floats) -> float:
    """The time that two sets of disjoint intervals share."""
    total, i, k = 0.0, 0, 0
    while i < len(first) and k < len(second):
        total += max(min(first[i, 1], second[k, 1]) - max(first[i, 0], second[k, 0]), 0.0)
        if first[i, 1] < second[k, 1]:
            i += 1
        else:
            k += 1
    return float(total)
