"""Replay: when every task starts, if each starts as soon as all that it waits for allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daceml.errors import CyclicGraphError
from daceml.simulation import loops
from daceml.simulation.compiled import Engine, engine_for, run
from daceml.simulation.engine.events import SchedulingPolicy, first_ready, run_events
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import TaskGraph

NAMED = 5  # tasks of a cycle that a message names


def simulate(
    graph: TaskGraph, policy: SchedulingPolicy | None = None, *, engine: Engine | None = None
) -> Schedule:
    """Replay a task graph on its lanes.

    A task starts at time zero at the earliest, `gap_us` after the end of the task before on its ordered lane,
    and `lag_us` after the end (or the start) of the source of every edge. The first task of an ordered lane,
    and every task of one that is not ordered, starts no earlier than its `gap_us`.

    Args:
        graph: edges and lanes may come in any order.
        policy: which of the tasks that are ready a lane that is not ordered runs next; the one that was
            ready first, if None. Ordered lanes keep their order.
        engine: what computes ordered lanes, if not whatever is fastest; the results have the same bits.
    Returns:
        start and end of every task.
    Raises:
        CyclicGraphError: some tasks wait for each other; the message names tasks of one such cycle.
        WhatIfError: the policy chose a task that is not ready.
    Source: Zhu et al., Daydream (ATC '20), Algorithm 1.
    """
    order = order_of(graph)
    structure = graph.structure
    if not all(lane.ordered for lane in graph.lanes):
        return run_events(graph, policy or first_ready)
    tasks, edges = graph.tasks, graph.edges
    start_us, end_us = np.zeros(len(graph)), np.zeros(len(graph))
    inputs = (
        *(order, structure.before, structure.in_start, structure.in_edge, structure.in_source),
        *(tasks.duration_us, tasks.gap_us, edges.lag_us, edges.from_start),
    )
    run(loops.sweep, inputs, (start_us, end_us), engine=engine or engine_for(len(graph)))
    return Schedule(
        graph=graph, start_us=start_us, end_us=end_us, before=structure.before, order=order, policy=policy
    )


def order_of(graph: TaskGraph) -> NDArray[np.int64]:
    """The tasks, each behind all that it waits for.

    Raises:
        CyclicGraphError: there is no such order.
    """
    structure = graph.structure
    if len(structure.order) == len(graph):
        return structure.order
    cycle = structure.cycle()
    named = [f"{graph.name_of(task)!r} ({graph.lanes[graph.tasks.lane[task]].name})" for task in cycle]
    more = f" -> {len(named) - NAMED} more" if len(named) > NAMED else ""
    raise CyclicGraphError(
        f"{len(cycle)} tasks wait for each other" if len(cycle) > 1 else "a task waits for itself",
        where=graph.source,
        why=f"{' -> '.join(named[:NAMED])}{more} -> {named[0]}",
        fix="take out the edge that points back in time, or change the order of a lane",
    )
