"""A critical path beside the one that HolisticTraceAnalysis drew into the same trace.

HTA weighs what runs inside operators of the framework; time between operators weighs nothing there. So the
path is found a second time with such gaps.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np

from daceml.profiling.kineto import read_trace
from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate
from daceml.simulation.graph import Floats, TaskGraph

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
Task = tuple[str, float]  # name, start on the clock of the file


def overlay_row(folder: Path) -> dict[str, Any]:
    """Device work of both paths, and what only one of them has."""
    trace = read_trace(folder / "input" / "trace.json.gz")
    graph = build(trace)
    expected = _expected(folder / "output" / "overlaid_critical_path_trace.json.gz")
    whole = _device_work(trace, graph)
    inside = _device_work(trace, graph.with_times(gap_us=_gaps_inside_operators(trace, graph)))
    return {
        "case": "critical path beside HTA's",
        "expected": len(expected),
        "missing": len(expected - inside),
        "more": len(inside - expected),
        "missing_with_time_between_operators": len(expected - whole),
    }


def _expected(file: Path) -> set[Task]:
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return {
        (event["name"], float(event["ts"]))
        for event in events
        if event.get("cat") in _DEVICE and event.get("args", {}).get("critical")
    }


def _device_work(trace: Trace, graph: TaskGraph) -> set[Task]:
    device = graph.on_device()
    path = critical_path(simulate(graph))
    return {
        (graph.name_of(task), float(round(trace.first_us + graph.tasks.recorded_us[task])))
        for task in path.tasks
        if device[task]
    }


def _gaps_inside_operators(trace: Trace, graph: TaskGraph) -> Floats:
    events = trace.events
    spans: list[list[float]] = []
    for event in events.of(EventKind.OPERATOR).tolist():
        start_us, end_us = float(events.start_us[event]), float(events.end_us[event])
        if spans and start_us <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end_us)
        else:
            spans.append([start_us, end_us])
    begins = [span[0] for span in spans]
    gaps = graph.tasks.gap_us.copy()
    before, recorded_us = graph.structure.before, graph.tasks.recorded_us
    for task in np.flatnonzero(~graph.on_device() & (gaps > 0)).tolist():
        earlier = before[task]
        since_us = 0.0 if earlier < 0 else float(recorded_us[earlier] + graph.tasks.duration_us[earlier])
        gaps[task] = _covered(spans, begins, since_us, since_us + float(gaps[task]))
    return gaps


def _covered(spans: list[list[float]], begins: list[float], begin_us: float, end_us: float) -> float:
    place, total = max(bisect_right(begins, begin_us) - 1, 0), 0.0
    while place < len(spans) and spans[place][0] < end_us:
        total += max(min(end_us, spans[place][1]) - max(begin_us, spans[place][0]), 0.0)
        place += 1
    return total
