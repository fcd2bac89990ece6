"""A recorded run as it is when nobody records it.

The profiler takes time for each operator and call that it records, on the thread that runs them. How much
is not in the trace; that a step takes longer is (`TaskGraph.inflation`), where some were timed without it.
Of other runs each recorded event is taken to cost what is usual.
"""

from __future__ import annotations

import numpy as np

from daceml.simulation.analysis.steps import step_times
from daceml.simulation.engine import simulate
from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.task import TaskKind

MOST_US = 20.0  # that recording one operator takes; 1 to 5 us are common
USUAL_US = 2.0  # of one event that was not measured: the geometric middle of 1 and 5 us
_HALVINGS = 30
_ALIKE = 1.001  # steps whose times differ by less are equally long


def without_profiler(graph: TaskGraph) -> TaskGraph:
    """The graph of the same run without the profiler; the graph itself where that cost nothing.

    If that was not measured, every task of a thread gets cheaper by `USUAL_US` for each event that was
    recorded for it on average. Otherwise it gets cheaper by one and the same time: the least with which the
    median step is as short as it was without the profiler, or as short as `MOST_US` make it. That time goes
    from the gap before a task, then from the task. Where a step waits for its device, faster threads change
    nothing; then nothing is known of them, and they stay as they are.
    """
    threads = ~graph.on_device() & (graph.tasks.kind != TaskKind.MARKER)
    if np.isnan(graph.inflation) and graph.host_events:
        events_per_task = graph.host_events / max(int(threads.sum()), 1)
        return _cheaper(graph, threads, min(USUAL_US * events_per_task, MOST_US))
    if not graph.inflation > 1.0:
        return graph
    wanted_us = max(
        _median_step_us(graph) / graph.inflation, _ALIKE * _median_step_us(_cheaper(graph, threads, MOST_US))
    )
    low_us, high_us = 0.0, MOST_US
    for _ in range(_HALVINGS):
        middle_us = (low_us + high_us) / 2
        if _median_step_us(_cheaper(graph, threads, middle_us)) <= wanted_us:
            high_us = middle_us
        else:
            low_us = middle_us
    return _cheaper(graph, threads, low_us)


def _median_step_us(graph: TaskGraph) -> float:
    loop_us = step_times(simulate(graph)).loop_us
    return float(np.median(loop_us)) if len(loop_us) else 0.0


def _cheaper(graph: TaskGraph, threads: Mask, cost_us: float) -> TaskGraph:
    gap_us, duration_us = graph.tasks.gap_us, graph.tasks.duration_us
    follows = graph.structure.before >= 0
    of_gap = np.where(threads & follows, np.clip(gap_us, 0.0, cost_us), 0.0)
    of_task = np.where(threads, np.minimum(duration_us, cost_us - of_gap), 0.0)
    return graph.with_times(gap_us=gap_us - of_gap, duration_us=duration_us - of_task)
