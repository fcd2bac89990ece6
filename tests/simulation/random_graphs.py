"""Task graphs without cycles for hypothesis; their times are multiples of 1/4 us, so that sums are exact."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import strategies as st

from daceml.simulation.graph import TaskGraph
from tests.support.task_stories import graph_of

QUARTERS = st.integers(0, 40).map(lambda number: number / 4)
LAGS = st.integers(-12, 20).map(lambda number: number / 4)


@st.composite
def task_graphs(draw: st.DrawFn, lanes: tuple[str, ...] = ("cpu", "gpu0", "stream7", "link")) -> TaskGraph:
    """Up to 14 tasks; edges point from sentences told earlier to ones told later, rows stand in any order."""
    count = draw(st.integers(1, 14))
    told: list[str] = []
    for number in range(count):
        words = [f"t{number}", draw(st.sampled_from(lanes)), str(draw(QUARTERS)), "gap", str(draw(LAGS))]
        words += ["priority", str(draw(st.integers(0, 3)))]
        for source in draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []:
            lag = draw(LAGS)
            words += [draw(st.sampled_from(("after", "with"))), f"t{source}", "+" if lag >= 0 else "-"]
            words.append(str(abs(lag)))
        told.append(" ".join(words))
    # Lanes one after the other: the order of the rows is then seldom one in which tasks could run.
    if draw(st.booleans()):
        told.sort(key=lambda sentence: sentence.split()[1])
    return graph_of(*told)


def longest_paths(
    graph: TaskGraph, delay_us: dict[int, float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends by repeating the definition until nothing changes; a delayed task starts later."""
    tasks, edges = graph.tasks, graph.edges
    start, end = [-math.inf] * len(graph), [-math.inf] * len(graph)
    lanes = [graph.lane_members(lane).tolist() for lane in range(len(graph.lanes))]
    before = {b: a for lane in lanes for a, b in itertools.pairwise(lane)}
    for _ in range(len(graph) + 1):
        for task in graph:
            bounds = [0.0, tasks.gap_us[task] + (end[before[task]] if task in before else 0.0)]
            for edge in np.flatnonzero(edges.target == task):
                since = start if edges.from_start[edge] else end
                bounds.append(since[edges.source[edge]] + edges.lag_us[edge])
            start[task] = max(bounds) + (delay_us or {}).get(task, 0.0)
            end[task] = start[task] + tasks.duration_us[task]
    return np.array(start), np.array(end)
