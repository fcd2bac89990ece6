"""Schedules as a file for Perfetto or chrome://tracing: what was recorded, its replay, what is predicted.

Each schedule is a process of the viewer, each lane a thread; the critical path has a lane of its own. The
form is the Trace Event Format's JSON: complete events ("ph": "X"), microseconds.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daceml.simulation.analysis.critical_path import CriticalPath
from daceml.simulation.engine import Schedule
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import Phase, TaskKind

_FIRST_LANE = 10  # the critical path stands above all lanes


def perfetto(
    schedules: Mapping[str, Schedule], *, paths: Mapping[str, CriticalPath] | None = None
) -> dict[str, Any]:
    """The trace as an object for `json`.

    Args:
        schedules: title -> schedule; the graph of the first is shown as it was recorded, too.
        paths: title -> critical path of that schedule.
    """
    events: list[dict[str, Any]] = []
    first = next(iter(schedules.values()))
    events += _process(1, "recorded", first.graph)
    events += _tasks(1, first.graph, first.graph.tasks.recorded_us.tolist())
    for process, (title, schedule) in enumerate(schedules.items(), start=2):
        events += _process(process, title, schedule.graph)
        events += _tasks(process, schedule.graph, schedule.start_us.tolist())
        if paths is not None and title in paths:
            events += _path(process, paths[title])
    return {"displayTimeUnit": "ms", "traceEvents": events}


def write_perfetto(
    file: Path, schedules: Mapping[str, Schedule], *, paths: Mapping[str, CriticalPath] | None = None
) -> None:
    """Write it, compressed where the name ends in .gz."""
    data = json.dumps(perfetto(schedules, paths=paths), separators=(",", ":")).encode()
    file.write_bytes(gzip.compress(data, mtime=0) if file.suffix == ".gz" else data)


def _process(process: int, title: str, graph: TaskGraph) -> Iterator[dict[str, Any]]:
    yield _named("process_name", process, None, title)
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for lane, known in enumerate(graph.lanes):
        yield _named("thread_name", process, _FIRST_LANE + lane, known.name)


def _named(what: str, process: int, thread: int | None, name: str) -> dict[str, Any]:
    place = {"pid": process} if thread is None else {"pid": process, "tid": thread}
    return {"ph": "M", "name": what, **place, "args": {"name": name}}


def _tasks(process: int, graph: TaskGraph, start_us: Sequence[float]) -> Iterator[dict[str, Any]]:
    tasks = graph.tasks
    durations, lanes = tasks.duration_us.tolist(), tasks.lane.tolist()
    kinds, phases, steps = tasks.kind.tolist(), tasks.phase.tolist(), tasks.step.tolist()
    for task in range(len(graph)):
        if math.isnan(start_us[task]) or kinds[task] == TaskKind.MARKER:
            continue
        facts = {
            "phase": Phase(phases[task]).name.lower(),
            "layer": graph.layer_of(task),
            "operator": graph.operator_of(task),
            "step": steps[task] if steps[task] >= 0 else None,
        }
        yield {
            "ph": "X",
            "name": graph.name_of(task),
            "cat": TaskKind(kinds[task]).name.lower(),
            "pid": process,
            "tid": _FIRST_LANE + lanes[task],
            "ts": start_us[task],
            "dur": durations[task],
            "args": {name: fact for name, fact in facts.items() if fact not in ("", None)},
        }


def _path(process: int, path: CriticalPath) -> Iterator[dict[str, Any]]:
    yield _named("thread_name", process, 1, "critical path")
    for segment in path.segments:
        yield {
            "ph": "X",
            "name": path.schedule.graph.name_of(segment.task)
            if segment.kind == "task"
            else path.spent_on(segment),
            "cat": segment.kind,
            "pid": process,
            "tid": 1,
            "ts": segment.start_us,
            "dur": segment.end_us - segment.start_us,
        }
