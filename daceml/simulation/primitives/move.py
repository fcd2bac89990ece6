"""Tasks go to another lane: a kernel to a stream of its own, loading to a thread of its own."""

from __future__ import annotations

import dataclasses

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import Edges, Ints, Mask, TaskGraph
from daceml.simulation.task import EdgeKind, Lane


def move(
    graph: TaskGraph,
    mask: Mask,
    lane: int | Lane,
    *,
    after: int | None = None,
    wait_before: bool = False,
    wait_after: bool = False,
) -> TaskGraph:
    """The selected tasks on another lane, in the order that they had; launches and other edges stay.

    What separated a task from the one before on the old lane goes: on the new one it starts when it can.

    Args:
        mask: [n] tasks of one lane; of several only where the new one is not ordered, or empty and the run
            recorded when each began.
        lane: number of one that exists, or a new one.
        after: index of a task of that lane behind which they go; None is behind all, FIRST before all.
        wait_before: the first of each run of moved tasks still waits for what stood before it.
        wait_after: what stood behind each run still waits for the last of it.
    Raises:
        WhatIfError: nothing is selected, nobody knows the order on the new lane, there is no such lane.
    """
    moved = np.flatnonzero(mask)
    if mask.shape != (len(graph),) or not len(moved):
        raise WhatIfError("there is nothing to move", fix="select tasks of the graph that is edited")
    lanes, number = _lanes(graph, lane)
    moved = _in_order(graph, moved, lanes[number])
    if (
        after is not None
        and after >= 0
        and (after >= len(graph) or mask[after] or _lane_of(graph, after) != number)
    ):
        raise WhatIfError(
            f"tasks cannot go behind task {after}", fix=f"give a task of {lanes[number].name!r} that stays"
        )
    edges = [graph.edges, _kept_order(graph, mask, lanes, number, wait_before, wait_after)]
    column, gap_us = graph.tasks.lane.copy(), graph.tasks.gap_us.copy()
    column[moved], gap_us[moved] = number, 0.0
    order = _rows(graph, mask, moved, after)
    place = np.empty(len(graph), np.int64)
    place[order] = np.arange(len(graph))
    joined = Edges.joined(edges)
    tasks = dataclasses.replace(graph.tasks, lane=column, gap_us=gap_us).taken(order)
    placed = dataclasses.replace(joined, source=place[joined.source], target=place[joined.target])
    return dataclasses.replace(graph, tasks=tasks, edges=placed, lanes=lanes)


def _lane_of(graph: TaskGraph, task: int) -> int:
    return int(graph.tasks.lane[task])


def _lanes(graph: TaskGraph, lane: int | Lane) -> tuple[tuple[Lane, ...], int]:
    if isinstance(lane, Lane):
        if any(known.name == lane.name for known in graph.lanes):
            raise WhatIfError(
                f"there is a lane {lane.name!r} already", fix="give its number, or another name"
            )
        return (*graph.lanes, lane), len(graph.lanes)
    if not 0 <= lane < len(graph.lanes):
        raise WhatIfError(
            f"there is no lane {lane}", fix=f"there are {len(graph.lanes)}; or give a new `Lane`"
        )
    return graph.lanes, lane


def _in_order(graph: TaskGraph, moved: Ints, lane: Lane) -> Ints:
    """The moved tasks as they shall stand on an ordered lane."""
    sources = np.unique(graph.tasks.lane[moved])
    if not lane.ordered or (len(sources) == 1 and graph.lanes[int(sources[0])].ordered):
        return moved
    times_us = graph.tasks.recorded_us[moved]
    if not np.isfinite(times_us).all():
        raise WhatIfError(
            f"the order is unknown for tasks of {len(sources)} lanes on {lane.name!r}",
            why="not all of them were recorded",
            fix="move those of each lane on their own, or to a lane that is not ordered",
        )
    return moved[np.argsort(times_us, kind="stable")]


def _rows(graph: TaskGraph, mask: Mask, moved: Ints, after: int | None) -> Ints:
    """Old indices in the new order of rows."""
    others = np.flatnonzero(~mask)
    if after is None:
        return np.concatenate([others, moved])
    cut = int(np.searchsorted(others, after, side="right")) if after >= 0 else 0
    return np.concatenate([others[:cut], moved, others[cut:]])


def _kept_order(
    graph: TaskGraph, mask: Mask, lanes: tuple[Lane, ...], number: int, before: bool, after: bool
) -> Edges:
    """Edges that stand for the order of the old lane, where it joined a moved task and another one."""
    rows: list[tuple[int, int, float, bool, EdgeKind]] = []
    for task in np.flatnonzero(mask).tolist():
        old = lanes[_lane_of(graph, task)]
        previous, following = int(graph.structure.before[task]), int(graph.structure.after[task])
        kind = edge_kind(old, lanes[number])
        if before and previous >= 0 and not mask[previous]:
            rows.append((previous, task, 0.0, False, kind))
        if after and following >= 0 and not mask[following]:
            rows.append((task, following, 0.0, False, kind))
    return Edges.of(rows)


def edge_kind(source: Lane, target: Lane) -> EdgeKind:
    """How work of one lane waits for work of another."""
    kinds = {source.kind, target.kind}
    if "channel" in kinds:
        return EdgeKind.CHANNEL
    if len(kinds) == 1:
        return EdgeKind.STREAM_WAIT if source.kind == "stream" else EdgeKind.HANDOVER
    return EdgeKind.SYNC if target.kind == "cpu" else EdgeKind.USER
