"""Recorded steps of operators, one after the other and without a device, as a task graph."""

from __future__ import annotations

import json
from typing import Any

from daceml.profiling.kineto import trace_of
from daceml.simulation.building.build import build
from daceml.simulation.graph import TaskGraph


def steps_of(*operators: tuple[str, float], steps: int = 2) -> TaskGraph:
    """Steps of these operators, each (name, microseconds)."""
    events: list[dict[str, Any]] = []
    now_us = 0.0
    for step in range(steps):
        begin_us = now_us
        for name, duration_us in operators:
            events.append({"cat": "cpu_op", "name": name, "ts": now_us, "dur": duration_us, "args": {}})
            now_us += duration_us
        name = f"ProfilerStep#{step}"
        events.append({"cat": "user_annotation", "name": name, "ts": begin_us, "dur": now_us - begin_us})
    document = {
        "traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events],
        "daceml": {"times": {"inflation": 1.0}},  # recording cost nothing
    }
    return build(trace_of(json.dumps(document).encode(), "a test"))


def every_phase(graph: TaskGraph) -> Any:
    """Operators of no module belong to no phase; here all are taken."""
    return tuple({int(phase) for phase in graph.tasks.phase})
