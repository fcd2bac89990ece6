"""Simulating again after times changed: only what follows from the change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daceml.errors import TaskGraphError
from daceml.simulation import loops
from daceml.simulation.compiled import Engine, engine_for, run
from daceml.simulation.engine.replay import simulate
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import TaskGraph


def resimulate(
    schedule: Schedule,
    graph: TaskGraph,
    *,
    changed: NDArray[np.integer[Any]] | None = None,
    engine: Engine | None = None,
) -> Schedule:
    """The schedule of a graph that differs from that of `schedule` in durations, gaps and lags only.

    It is that of `simulate`, bit for bit. It costs a comparison and a copy of the columns, and then grows
    with the number of tasks whose times change: a change that shifts everything behind it costs more than the
    replay of that. Where lanes are not ordered, everything is simulated.

    Args:
        schedule: of a graph with the same tasks and dependencies in the same order.
        graph: `schedule.graph.with_times(...)`, or one that was made anew.
        changed: numbers of the tasks whose duration, gap or lag of an edge into them may be another one, for
            whoever knows; all others must be as they were. What differs is looked for if None.
        engine: as of `simulate`.
    Raises:
        TaskGraphError: the graph has other tasks, lanes or dependencies.
    """
    _check_same(schedule.graph, graph)
    if not all(lane.ordered for lane in graph.lanes):
        return simulate(graph, schedule.policy)
    start_us, end_us = schedule.start_us.copy(), schedule.end_us.copy()
    changed = _changed(schedule.graph, graph) if changed is None else changed
    if len(changed):
        _spread(graph, changed, start_us, end_us, engine or engine_for(len(graph)))
    return Schedule(
        graph=graph,
        start_us=start_us,
        end_us=end_us,
        before=schedule.before,
        order=schedule.order,
        policy=schedule.policy,
    )


def _spread(
    graph: TaskGraph,
    changed: NDArray[np.integer[Any]],
    start_us: NDArray[np.float64],
    end_us: NDArray[np.float64],
    engine: Engine,
) -> None:
    structure, tasks, edges = graph.structure, graph.tasks, graph.edges
    places = structure.position_of[changed]
    marked = np.zeros(len(graph), np.uint8)
    marked[places] = 1
    block_marked = np.zeros(-(-len(graph) // loops.BLOCK), np.uint8)
    block_marked[places // loops.BLOCK] = 1
    inputs = (
        *(structure.order, structure.position_of, structure.before, structure.after),
        *(structure.in_start, structure.in_edge, structure.in_source),
        *(structure.out_start, structure.out_edge, structure.out_target),
        *(tasks.duration_us, tasks.gap_us, edges.lag_us, edges.from_start),
    )
    run(loops.spread, inputs, (marked, block_marked, start_us, end_us), engine=engine, sparse=True)


def _changed(old: TaskGraph, new: TaskGraph) -> NDArray[np.int64]:
    """Tasks whose own times, or those of an edge into them, are others."""
    parts = [
        *(np.flatnonzero(a != b) for a, b in _pairs(old, new, "tasks", "duration_us", "gap_us")),
        *(
            new.edges.target[np.flatnonzero(a != b)]
            for a, b in _pairs(old, new, "edges", "lag_us", "from_start")
        ),
    ]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _pairs(
    old: TaskGraph, new: TaskGraph, table: str, *columns: str
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Columns of both graphs, without those that are one and the same array."""
    for column in columns:
        a, b = getattr(getattr(old, table), column), getattr(getattr(new, table), column)
        if a is not b:
            yield a, b


def _check_same(old: TaskGraph, new: TaskGraph) -> None:
    if old.structure is new.__dict__.get("structure"):
        return
    pairs = (
        ("tasks", old.tasks.lane, new.tasks.lane),
        ("edges", old.edges.source, new.edges.source),
        ("edges", old.edges.target, new.edges.target),
    )
    for what, a, b in pairs:
        if not np.array_equal(a, b):
            raise TaskGraphError(
                f"the graph has other {what} than the one that was simulated",
                where=new.source,
                fix="call simulate(graph): only durations, gaps and lags can be simulated again",
            )
    if [lane.ordered for lane in old.lanes] != [lane.ordered for lane in new.lanes]:
        raise TaskGraphError(
            "other lanes of the graph are ordered than of the one that was simulated",
            where=new.source,
            fix="call simulate(graph): only durations, gaps and lags can be simulated again",
        )
    new.__dict__["structure"] = old.structure
