"""Another order of the same tasks: priorities, lanes that are free to choose, a given order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import Edges, Floats, Mask, TaskGraph
from daceml.simulation.task import EdgeKind


def with_priority(graph: TaskGraph, mask: Mask, priority: float | Floats) -> TaskGraph:
    """The selected tasks with a priority, or one for each: on a lane that is not ordered higher goes first.

    Policies such as `engine.by_priority` read it; ordered lanes keep their order.
    """
    wanted = np.asarray(priority, np.float64)
    if wanted.shape not in ((), (int(mask.sum()),)) or np.isnan(wanted).any():
        raise WhatIfError(
            f"{wanted.size} priorities for {int(mask.sum())} selected tasks",
            fix="give one number, or one for each task",
        )
    changed = graph.tasks.priority.copy()
    changed[mask] = wanted
    return dataclasses.replace(graph, tasks=dataclasses.replace(graph.tasks, priority=changed))


def unordered(graph: TaskGraph, lane: int, *, keep_order: Mask | None = None) -> TaskGraph:
    """A lane that runs what is ready first, or what a policy chooses.

    Its gaps go: on such a lane they would be moments before which nothing starts.

    Args:
        keep_order: [n] tasks of the lane that still run one behind the other, with the gaps between them.
    Raises:
        WhatIfError: there is no such lane.
    """
    if not 0 <= lane < len(graph.lanes):
        raise WhatIfError(f"there is no lane {lane}", fix=f"give a number below {len(graph.lanes)}")
    members = graph.lane_members(lane)
    gap_us = graph.tasks.gap_us.copy()
    gap_us[members] = 0.0
    kept = members[:0] if keep_order is None else members[keep_order[members]]
    order = Edges.of(
        (first, second, float(graph.tasks.gap_us[second]), False, EdgeKind.USER)
        for first, second in pairwise(kept.tolist())
    )
    lanes = list(graph.lanes)
    lanes[lane] = dataclasses.replace(lanes[lane], ordered=False)
    return dataclasses.replace(
        graph,
        tasks=dataclasses.replace(graph.tasks, gap_us=gap_us),
        edges=Edges.joined([graph.edges, order]),
        lanes=tuple(lanes),
    )


def reordered(graph: TaskGraph, tasks: Sequence[int]) -> TaskGraph:
    """The given tasks of one ordered lane in this order, in the places that they have among the others.

    Raises:
        WhatIfError: a task is given twice, or they are not of one ordered lane.
    """
    wanted = np.asarray(tasks, np.int64)
    lanes = {int(lane) for lane in graph.tasks.lane[wanted]}
    if len(np.unique(wanted)) != len(wanted) or len(lanes) != 1 or not graph.lanes[min(lanes)].ordered:
        raise WhatIfError(
            "these tasks have no order to change",
            fix="give each task of one ordered lane once, as it shall run",
        )
    order = np.arange(len(graph))
    order[np.sort(wanted)] = wanted
    place = np.empty(len(graph), np.int64)
    place[order] = np.arange(len(graph))
    rows, first = graph.tasks.taken(order), int(graph.lane_members(min(lanes))[0])
    gap_us = rows.gap_us.copy()  # that of the first place stays there: it says when the lane begins
    gap_us[[first, place[first]]] = gap_us[[place[first], first]]
    edges = dataclasses.replace(
        graph.edges, source=place[graph.edges.source], target=place[graph.edges.target]
    )
    return dataclasses.replace(graph, tasks=dataclasses.replace(rows, gap_us=gap_us), edges=edges)
