"""What a replay of one recorded run gets right, and what the laws say of runs that nobody recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from daceml.profiling.kineto import read_trace
from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.analysis.steps import recorded_step_times, step_error, step_times
from daceml.simulation.building.build import Options, build
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import TaskGraph

FACTORS = (0.0, 0.5, 1.0, 2.0)
DEPTHS = (900, 1024, 1300)


def replay_row(file: Path, name: str) -> dict[str, Any]:
    """Errors of the replay, laws under perturbation, and what the graph could not know."""
    graph = build(read_trace(file))
    schedule = simulate(graph)
    device = graph.on_device()
    loop_us = step_times(schedule).loop_us
    recorded_us = recorded_step_times(graph).loop_us
    again = simulate(_as_replayed(schedule))
    return {
        "case": name,
        "tasks": len(graph),
        "edges": len(graph.edges),
        "steps": len(loop_us),
        "step_error": step_error(schedule),
        "total_error": float(abs(loop_us.sum() / recorded_us.sum() - 1)) if recorded_us.sum() else 0.0,
        "busy_error": busy_error(schedule),
        "span_error": span_error(schedule),
        "kernels_out_of_order": out_of_order(schedule),
        "makespan_us": {str(factor): scaled(graph, factor).makespan_us for factor in FACTORS},
        "device_busy_us": float(graph.tasks.duration_us[device].sum()),
        "path_error_us": abs(critical_path(schedule).length_us - schedule.makespan_us),
        "replay_of_replay_us": float(np.abs(again.start_us - schedule.start_us).max(initial=0.0)),
        "notes": list(graph.notes),
    }


def scaled(graph: TaskGraph, factor: float) -> Schedule:
    """The run with all work of devices `factor` times as long."""
    duration_us = np.where(graph.on_device(), factor * graph.tasks.duration_us, graph.tasks.duration_us)
    return simulate(graph.with_times(duration_us=duration_us))


def _as_replayed(schedule: Schedule) -> TaskGraph:
    """The graph with the durations that the replay gave its tasks."""
    return schedule.graph.with_times(duration_us=schedule.end_us - schedule.start_us)


def _streams(graph: TaskGraph) -> list[np.ndarray[Any, np.dtype[np.intp]]]:
    lanes = (lane for lane, known in enumerate(graph.lanes) if known.kind == "stream")
    return [members for lane in lanes if len(members := graph.lane_members(lane))]


def busy_error(schedule: Schedule) -> float:
    """By how much a stream's busy time differs from the recorded one, as a share: the worst stream."""
    graph = schedule.graph
    worst = 0.0
    for members in _streams(graph):
        recorded_us = graph.tasks.duration_us[members].sum()
        seen_us = (schedule.end_us - schedule.start_us)[members].sum()
        worst = max(worst, abs(seen_us / recorded_us - 1) if recorded_us else 0.0)
    return float(worst)


def span_error(schedule: Schedule) -> float:
    """By how much a stream's span, from its first to its last moment, differs: the worst, as a share."""
    graph, worst = schedule.graph, 0.0
    recorded_us = graph.tasks.recorded_us
    for members in _streams(graph):
        last_us = recorded_us[members] + graph.tasks.duration_us[members]
        recorded = last_us.max() - recorded_us[members].min()
        seen = schedule.end_us[members].max() - schedule.start_us[members].min()
        worst = max(worst, abs(seen / recorded - 1) if recorded > 1000 else 0.0)
    return float(worst)


def out_of_order(schedule: Schedule) -> int:
    """Kernels that start before one of their stream that the run started earlier."""
    graph, wrong = schedule.graph, 0
    for members in _streams(graph):
        order = np.argsort(graph.tasks.recorded_us[members], kind="stable")
        wrong += int((np.diff(schedule.start_us[members][order]) < 0).sum())
    return wrong


def bound_by_device(file: Path) -> dict[str, Any]:
    """The run whose launch queue is full: kernels twice and half as long, at several depths of the queue."""
    trace = read_trace(file)
    graph = build(trace)
    halved, whole, doubled = (_device_span_us(scaled(graph, factor)) for factor in (0.5, 1.0, 2.0))
    floor_us = scaled(graph, 0.0).makespan_us
    busy_us = float(graph.tasks.duration_us[graph.on_device()].sum())
    expected_us = max(0.5 * busy_us, floor_us)
    depths = {
        depth: _device_span_us(scaled(build(trace, Options(queue_depth=depth)), 0.5)) for depth in DEPTHS
    }
    return {
        "case": "kernels of a run that the device limits",
        "halved_us": halved,
        "whole_us": whole,
        "doubled_us": doubled,
        "cpu_floor_us": floor_us,
        "expected_halved_us": expected_us,
        "spacing_us": float(graph.tasks.gap_us[graph.on_device() & (graph.structure.before >= 0)].sum()),
        "halved_error": abs(halved / expected_us - 1),
        "halved_at_depth_us": {str(depth): span_us for depth, span_us in depths.items()},
        "depth_spread": (max(depths.values()) - min(depths.values())) / halved,
    }


def _device_span_us(schedule: Schedule) -> float:
    """From the first moment of the device's work to its last."""
    device = schedule.graph.on_device()
    return float(schedule.end_us[device].max() - schedule.start_us[device].min())
