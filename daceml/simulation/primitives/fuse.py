"""Several tasks of one lane become one: a fused kernel, launched once."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from daceml.errors import CyclicGraphError, WhatIfError
from daceml.simulation.engine.replay import order_of
from daceml.simulation.graph import NOTHING, Edges, Floats, Ints, Mask, TaskGraph
from daceml.simulation.primitives.edit import without
from daceml.simulation.primitives.select import launches_of
from daceml.simulation.task import EdgeKind

Place = Literal["first", "last"]


def fuse(
    graph: TaskGraph, mask: Mask, *, duration_us: float | None = None, name: str | None = None
) -> TaskGraph:
    """The selected tasks as one, where the last of them stood, as all that they need is there by then.

    Who waited for one of them waits for the whole, and the whole for all that they waited for. The calls that
    launched the others go, with the time in which the framework prepared them.

    Args:
        mask: [n] tasks of one ordered lane.
        duration_us: of the whole; None is the sum.
    Raises:
        WhatIfError: nothing is selected, tasks of several lanes are, the lane is not ordered, or one of them
            waits, through other lanes, for another one.
    """
    if mask.shape != (len(graph),) or not mask.any():
        raise WhatIfError("there is nothing to fuse", fix="select tasks of the graph that is edited")
    total_us = float(graph.tasks.duration_us[mask].sum()) if duration_us is None else duration_us
    return fuse_groups(graph, np.where(mask, 0, NOTHING), np.array([total_us]), name=name)


def fuse_groups(
    graph: TaskGraph, group: Ints, duration_us: Floats, *, name: str | None = None, where: Place = "last"
) -> TaskGraph:
    """Every group of tasks as one; `fuse` says how.

    Args:
        group: [n] number of the group of each task, NOTHING of those that stay alone.
        duration_us: [groups] of each whole.
        name: of the wholes; None lets each have that of its last task, with how many it stands for.
        where: which task of its group a whole replaces. "first" also keeps the launch of the first task, so
            that no whole begins later than its group did; only where no other lane delays a later task.
    Raises:
        WhatIfError: a group spans lanes, or is on one that is not ordered, or waits for itself through other
            lanes; a duration is below zero.
    """
    members = np.flatnonzero(group != NOTHING)
    if not len(members):
        return graph
    _check(graph, group, members, duration_us)
    stand = np.full(len(duration_us), 0 if where == "last" else len(graph), np.int64)
    (np.maximum if where == "last" else np.minimum).at(stand, group[members], members)
    last = np.zeros(len(duration_us), np.int64)
    last[group[members]] = members
    count = np.bincount(group[members], minlength=len(duration_us))
    place = np.arange(len(graph))
    place[members] = stand[group[members]]
    gone = np.zeros(len(graph), np.bool_)
    gone[members] = True
    gone[stand[count > 0]] = False
    kept = stand[count > 1]
    wholes = np.flatnonzero(count > 1)

    edges = graph.edges
    carried = ~np.isin(edges.kind, (EdgeKind.LAUNCH, EdgeKind.QUEUE, EdgeKind.CONTENTION))
    source = np.where(carried, place[edges.source], edges.source)
    target = np.where(carried, place[edges.target], edges.target)
    merged = Edges(
        source=source, target=target, lag_us=edges.lag_us, from_start=edges.from_start, kind=edges.kind
    ).taken(source != target)
    names = {known: index for index, known in enumerate(graph.names)}
    tasks = dataclasses.replace(
        graph.tasks,
        duration_us=graph.tasks.duration_us.copy(),
        # the duration of the whole says what overlapped in the group
        gap_us=np.where(gone, np.maximum(graph.tasks.gap_us, -graph.tasks.duration_us), graph.tasks.gap_us),
        name=graph.tasks.name.copy(),
    )
    tasks.duration_us[stand[count > 0]] = duration_us[count > 0]
    for task, whole in zip(kept.tolist(), wholes.tolist(), strict=True):
        text = name or f"fused {count[whole]}: {graph.name_of(int(last[whole]))}"
        tasks.name[task] = names.setdefault(text, len(names))
    fused = dataclasses.replace(graph, tasks=tasks, edges=merged, names=tuple(names))
    result = without(fused, gone | launches_of(graph, gone))
    if gone[edges.source[carried]].any():
        _check_order(result)
    return result


def cut_where_awaited(graph: TaskGraph, group: Ints) -> Ints:
    """The groups, cut after each task that another lane waits for and before each that waits for one.

    The other lane, or the first tasks of the group, would wait longer. Of such groups none waits for itself.
    """
    awaited, waiting = np.zeros((2, len(graph)), np.bool_)
    waits = ~np.isin(graph.edges.kind, (EdgeKind.LAUNCH, EdgeKind.QUEUE, EdgeKind.CONTENTION))
    awaited[graph.edges.source[waits]] = True
    waiting[graph.edges.target[waits]] = True
    parts: dict[tuple[int, int], int] = {}
    cuts: dict[int, int] = {}
    cut = np.full(len(graph), NOTHING, np.int64)
    for task in np.flatnonzero(group != NOTHING).tolist():
        number = int(group[task])
        passed = cuts.get(number, 0) + int(waiting[task])
        cut[task] = parts.setdefault((number, passed), len(parts))
        cuts[number] = passed + int(awaited[task])
    return cut


def _check_order(graph: TaskGraph) -> None:
    try:
        order_of(graph)
    except CyclicGraphError as error:
        raise WhatIfError(
            "these tasks cannot be one",
            where=graph.source,
            why=f"one of them waits for another one through other lanes: {error.why}",
            fix="fuse what stands before the wait and what stands behind it on their own",
        ) from error


def _check(graph: TaskGraph, group: Ints, members: NDArray[np.intp], duration_us: Floats) -> None:
    if group.shape != (len(graph),) or group[members].max() >= len(duration_us):
        raise WhatIfError("groups and durations do not fit the graph", fix="give a duration for each group")
    if not np.isfinite(duration_us).all() or (duration_us < 0).any():
        raise WhatIfError("a duration is negative or no finite number", fix="give microseconds, 0 or more")
    lane = np.full(len(duration_us), NOTHING, np.int64)
    lane[group[members]] = graph.tasks.lane[members]
    foreign = members[lane[group[members]] != graph.tasks.lane[members]]
    if len(foreign):
        other, first = int(lane[group[foreign[0]]]), int(foreign[0])
        raise WhatIfError(
            f"{graph.name_of(first)!r} on {graph.lanes[graph.tasks.lane[first]].name!r} cannot be fused with"
            f" tasks on {graph.lanes[other].name!r}",
            fix="move them to one lane first, or fuse those of each lane on their own",
        )
    for number in np.unique(graph.tasks.lane[members]).tolist():
        if not graph.lanes[number].ordered:
            raise WhatIfError(
                f"lane {graph.lanes[number].name!r} is not ordered",
                why="the last of its tasks is unknown",
                fix="fuse tasks of an ordered lane",
            )
