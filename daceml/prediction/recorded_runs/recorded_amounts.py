"""What every task of a recorded run computes and moves, where shapes, sizes or a compiler's counts say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from daceml.devices.catalogue import catalogue
from daceml.devices.specification import Device
from daceml.errors import OriginDeviceError
from daceml.operations.work.operator_work import work_of
from daceml.prediction.recorded_runs.device_run import device_tasks
from daceml.prediction.recorded_runs.recorded_operations import operation_of
from daceml.prediction.recorded_runs.recording_device import origin_of
from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.analysis.busiest import Amounts
from daceml.simulation.graph import Floats, TaskGraph
from daceml.simulation.task import TaskKind

_CACHES = 6.0  # times as fast as memory at most: L2 of an RTX 4090, Infinity Cache of an MI300X


def recorded_amounts(graph: TaskGraph, trace: Trace) -> Amounts:
    """Flops and bytes of tasks; those of a call are shared by its kernels as its time is.

    An amount that the device cannot reach in the recorded time is not known: shapes then say something else.

    Args:
        trace: that the graph was built of.
    """
    flops, moved = np.full(len(graph), np.nan), graph.tasks.size_bytes.copy()
    for task in device_tasks(graph, trace):
        if task.work is not None:
            flops[task.task] = task.work.flops * task.share
            moved[task.task] = task.work.bytes_moved * task.share
    for task, event in _operators(graph, trace):
        operation = operation_of(trace.name_of(event), trace.events.details[event])
        work = None if operation is None else work_of(operation)
        if work is not None:
            flops[task], moved[task] = work.flops, work.bytes_moved
    most_flops_per_s, most_bytes_per_s = _most(trace)
    duration_us = graph.tasks.duration_us
    return Amounts(
        flops=_possible(flops, duration_us, most_flops_per_s),
        bytes_moved=_possible(moved, duration_us, most_bytes_per_s),
        shapes=any("Input Dims" in details for details in _details(trace)),
    )


def _details(trace: Trace) -> Iterator[Mapping[str, Any]]:
    """What each operator says besides its times."""
    return (trace.events.details[event] for event in trace.events.of(EventKind.OPERATOR).tolist())


def _operators(graph: TaskGraph, trace: Trace) -> Iterator[tuple[int, int]]:
    """Tasks that are operators, as in a run without a device, and their events."""
    events, tasks = trace.events, graph.tasks
    rows = np.flatnonzero(tasks.kind == TaskKind.OPERATOR).tolist()
    if not rows:
        return
    place = {
        (trace.lanes[events.lane[event]].name, float(events.start_us[event]), trace.name_of(event)): event
        for event in reversed(events.of(EventKind.OPERATOR).tolist())  # the outermost of those that agree
    }
    for row in rows:
        key = (graph.lanes[tasks.lane[row]].name, float(tasks.recorded_us[row]), graph.name_of(row))
        if key in place:
            yield row, place[key]


def _possible(amount: Floats, duration_us: Floats, most_per_s: float) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(amount <= most_per_s * duration_us / 1e6, amount, np.nan)


def _most(trace: Trace) -> tuple[float, float]:
    """What the device, or of an unknown one the fastest in the catalogue, computes and moves in a second."""
    try:
        devices: tuple[Device, ...] = (origin_of(trace),)
    except OriginDeviceError:
        devices = catalogue()
    peaks = [peak.value for one in devices for peak in one.peak_flops_per_s.values()]
    rates = [one.memory_bytes_per_s.value for one in devices if one.memory_bytes_per_s is not None]
    return max(peaks, default=np.inf), _CACHES * max(rates, default=np.inf)
