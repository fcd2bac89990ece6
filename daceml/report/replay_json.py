"""A replay, and what-if questions with their answers, as objects for `json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from daceml.report.replay_text import warnings_of, whatif_warnings
from daceml.simulation.analysis.breakdown import breakdown
from daceml.simulation.analysis.busiest import Amounts, busiest, overlap
from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.analysis.idle import idle
from daceml.simulation.analysis.limits import limits
from daceml.simulation.analysis.steps import kind_times, recorded_step_times, step_error, step_times
from daceml.simulation.engine import Schedule
from daceml.simulation.whatif.whatif_result import Prediction, Refusal


def replay_json(schedule: Schedule, *, amounts: Amounts | None = None) -> dict[str, Any]:
    """Steps, shares, limits and the critical path by kind of work; times in microseconds.

    Args:
        amounts: that tasks compute and move; None knows the sizes of copies and collectives.
    """
    graph = schedule.graph
    seen, recorded = step_times(schedule), recorded_step_times(graph)
    rows = zip(seen.names, recorded.loop_us.tolist(), seen.loop_us.tolist(), strict=True)
    sent, unused = overlap(schedule), idle(schedule)
    return {
        "source": graph.source,
        "tasks": len(graph),
        "edges": len(graph.edges),
        "lanes": [lane.name for lane in graph.lanes],
        "steps": [{"name": name, "recorded_us": was, "replayed_us": now} for name, was, now in rows],
        "kinds": [
            {"kind": now.kind, "steps": now.steps, "recorded_us": was.step_us, "replayed_us": now.step_us}
            for now, was in zip(kind_times(seen), kind_times(recorded), strict=True)
        ],
        "step_us": seen.step_us,
        "replay_error": step_error(schedule),
        "makespan_us": schedule.makespan_us,
        "breakdown": asdict(breakdown(schedule)),
        "limits": [asdict(limit) for limit in limits(schedule)],
        "critical_path_us": path_sums(schedule),
        "busiest": {
            what: [asdict(row) for row in rows] for what, rows in busiest(graph, amounts=amounts).items()
        },
        "communication": None if sent is None else asdict(sent),
        "idle": None if unused is None else asdict(unused),
        "warnings": list(warnings_of(schedule)),
        "notes": list(graph.notes),
    }


def path_sums(schedule: Schedule) -> dict[str, float]:
    """Kind of work or wait -> its time on the critical path, microseconds; the largest first."""
    path = critical_path(schedule)
    sums: dict[str, float] = {}
    for segment in path.segments:
        if segment.duration_us > 0:
            kind = path.spent_on(segment)
            sums[kind] = sums.get(kind, 0.0) + segment.duration_us
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def whatif_json(
    predictions: Sequence[Prediction], refusals: Sequence[Refusal] = (), *, assumed: Sequence[str] = ()
) -> dict[str, Any]:
    """The run as it was, and each question; times in microseconds.

    Args:
        assumed: facts that were not given, and what was taken instead.
    """
    first = predictions[0]
    return {
        "source": first.baseline.graph.source,
        "step_us": first.baseline_us,
        "replay_error": first.replay_error,
        "warnings": whatif_warnings(predictions),
        "host": None if first.host is None else asdict(first.host),
        "notes": list(first.baseline.graph.notes),
        "assumptions": list(assumed),
        "questions": [
            {
                "optimizations": list(seen.titles),
                "step_us": seen.step_us,
                "fast_us": seen.fast_us,
                "slow_us": seen.slow_us,
                "kinds_us": {one.kind: one.step_us for one in kind_times(step_times(seen.schedule))},
                "samples": seen.samples,
                "speedup": seen.speedup,
                "speedup_low": seen.speedup_low,
                "speedup_high": seen.speedup_high,
                "host_limits": seen.host_limits,
                "assumptions": list(seen.assumptions),
                "change": seen.change.to_json(),
                "critical_path_us": path_sums(seen.schedule),
            }
            for seen in predictions
        ],
        "refused": [asdict(refusal) for refusal in refusals],
    }
