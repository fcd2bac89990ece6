"""What the page shows of a recorded run: lanes as measured, replayed and predicted, with critical paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from daceml.report.replay_text import error_line
from daceml.simulation.analysis.critical_path import CriticalPath, Segment, critical_path
from daceml.simulation.engine import Schedule
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import Phase, TaskKind
from daceml.simulation.whatif.whatif_result import Prediction

_MOST_TASKS = 200_000


def timeline_view(
    replayed: Schedule,
    predictions: Sequence[Prediction] = (),
    refusals: Sequence[str] = (),
    *,
    recorded: bool = True,
) -> dict[str, Any]:
    """Lanes of tasks; times in microseconds from the first task.

    Args:
        replayed: of the run as it was.
        predictions: answers to what-if questions.
        refusals: of questions without an answer.
        recorded: whether it is the replay of a run as it was; else nothing of it was measured.
    """
    graph = replayed.graph
    named: dict[str, int] = {}
    runs: list[dict[str, Any]] = []
    if recorded:
        runs.append(_run("measured", graph, graph.tasks.recorded_us.tolist(), set(), named))
    runs.append(_replayed("replayed" if recorded else "simulated", replayed, named))
    runs += [_replayed(" + ".join(seen.titles), seen.schedule, named) for seen in predictions]
    return {
        "kind": "trace",
        "title": graph.source,
        "error": error_line(replayed) if recorded else "simulated; nothing here was measured",
        "notes": [*(f"warning: {warning}" for warning in graph.warnings), *graph.notes],
        "names": list(named),
        "runs": runs,
        "answers": [_answer(seen) for seen in predictions],
        "refusals": list(refusals),
    }


def _replayed(title: str, schedule: Schedule, named: dict[str, int]) -> dict[str, Any]:
    path = critical_path(schedule)
    on_path = {segment.task for segment in path.segments if segment.kind == "task"}
    shown = _run(title, schedule.graph, schedule.start_us.tolist(), on_path, named)
    begin = shown.pop("begin_us")
    shown["path"] = [
        [round(s.start_us - begin, 3), round(s.end_us - s.start_us, 3), _number(_said(path, s), named)]
        for s in path.segments
    ]
    return shown


def _said(path: CriticalPath, segment: Segment) -> str:
    return path.schedule.graph.name_of(segment.task) if segment.kind == "task" else path.spent_on(segment)


def _run(
    title: str, graph: TaskGraph, starts: Sequence[float], on_path: set[int], named: dict[str, int]
) -> dict[str, Any]:
    tasks = graph.tasks
    durations, lanes, kinds = tasks.duration_us.tolist(), tasks.lane.tolist(), tasks.kind.tolist()
    phases = tasks.phase.tolist()
    shown = [
        task for task in range(len(graph)) if not math.isnan(starts[task]) and kinds[task] != TaskKind.MARKER
    ]
    known = len(shown)
    if known > _MOST_TASKS:  # the longest say the most
        shown = sorted(sorted(shown, key=lambda task: -durations[task])[:_MOST_TASKS])
    begin = min((starts[task] for task in shown), default=0.0)
    found: list[list[list[float]]] = [[] for _ in graph.lanes]
    for task in shown:
        found[lanes[task]].append(
            [
                round(starts[task] - begin, 3),
                round(durations[task], 3),
                _number(graph.name_of(task), named),
                int(task in on_path),
                phases[task],
            ]
        )
    return {
        "title": title,
        "begin_us": begin,
        "lanes": [
            {"name": lane.name, "kind": lane.kind, "tasks": sorted(tasks)}
            for lane, tasks in zip(graph.lanes, found, strict=True)
            if tasks
        ],
        "path": [],
        "phases": [phase.name.lower() for phase in Phase],
        "left_out": known - len(shown),
    }


def _number(name: str, named: dict[str, int]) -> int:
    return named.setdefault(name, len(named))


def _answer(seen: Prediction) -> dict[str, Any]:
    return {
        "title": " + ".join(seen.titles),
        "step_us": seen.step_us,
        "low_us": seen.fast_us,
        "high_us": seen.slow_us,
        "baseline_us": seen.baseline_us,
        "speedup": seen.speedup if math.isfinite(seen.speedup) else None,
        "changes": seen.change.headline(),
        "assumptions": list(seen.assumptions),
    }
