"""One task becomes several parts of its lane."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import Edges, TaskGraph
from daceml.simulation.primitives.edit import NewEdge, NewTask, with_tasks
from daceml.simulation.primitives.insert import usual_latency_us, usual_launch_gap_us
from daceml.simulation.task import EdgeKind, Phase, TaskKind


def split(
    graph: TaskGraph,
    task: int,
    parts: int | Sequence[float],
    *,
    gap_us: float = 0.0,
    with_launches: bool = False,
) -> TaskGraph:
    """A task in parts that share its duration and bytes; the sum stays.

    On an ordered lane the first part waits for what the task waited for, and who waited for its end waits for
    the last one. On another lane each part waits for all that, and all are waited for: their order is free.

    Args:
        parts: how many equal ones, or the share of each.
        gap_us: between two parts of an ordered lane.
        with_launches: every further part has a launch of its own, like that of the task and right behind it;
            else one call launches all.
    Raises:
        WhatIfError: shares are not above zero, or there is no launch to repeat.
    """
    shares = _shares(graph, task, parts)
    tasks, lane = graph.tasks, int(graph.tasks.lane[task])
    ordered = graph.lanes[lane].ordered
    name = graph.name_of(task)
    new = [
        NewTask(
            name=f"{name} [{number}/{len(shares)}]", kind=TaskKind(int(tasks.kind[task])), lane=lane,
            after=task, like=task, duration_us=float(tasks.duration_us[task] * share),
            gap_us=gap_us if ordered else float(tasks.gap_us[task]),
            phase=Phase(int(tasks.phase[task])), priority=float(tasks.priority[task]),
            size_bytes=float(tasks.size_bytes[task] * share),
        )
        for number, share in enumerate(shares[1:], 2)
    ]  # fmt: skip
    more: list[NewEdge] = []
    if with_launches:
        _add_launches(graph, task, new, more)
    edges = graph.edges
    rows = Edges.of(())
    if ordered:
        leaves = (edges.source == task) & ~edges.from_start
        rows = edges.taken(leaves)
        more += [
            (~(len(shares) - 2), int(target), float(lag_us), False, EdgeKind(int(kind)))
            for target, lag_us, kind in zip(rows.target, rows.lag_us, rows.kind, strict=True)
        ]
        edges = edges.taken(~leaves)
    else:
        for edge in np.flatnonzero((edges.source == task) | (edges.target == task)).tolist():
            ends = (int(edges.source[edge]), int(edges.target[edge]))
            for part in range(len(shares) - 1):
                source, target = (~part if end == task else end for end in ends)
                lag_us, kind = float(edges.lag_us[edge]), EdgeKind(int(edges.kind[edge]))
                more.append((source, target, lag_us, bool(edges.from_start[edge]), kind))
    duration_us, size_bytes = tasks.duration_us.copy(), tasks.size_bytes.copy()
    duration_us[task] *= shares[0]
    size_bytes[task] *= shares[0]
    column = tasks.name.copy()
    names = {known: index for index, known in enumerate(graph.names)}
    column[task] = names.setdefault(f"{name} [1/{len(shares)}]", len(names))
    shrunk = dataclasses.replace(
        graph,
        tasks=dataclasses.replace(tasks, duration_us=duration_us, size_bytes=size_bytes, name=column),
        edges=edges,
        names=tuple(names),
    )
    return with_tasks(shrunk, new, more)


def _shares(graph: TaskGraph, task: int, parts: int | Sequence[float]) -> list[float]:
    if not 0 <= task < len(graph):
        raise WhatIfError(f"there is no task {task}", fix="give an index of the graph that is edited")
    sizes = [1.0] * parts if isinstance(parts, int) else [float(part) for part in parts]
    if len(sizes) < 2 or not all(np.isfinite(size) and size > 0 for size in sizes):
        raise WhatIfError(
            f"{graph.name_of(task)!r} cannot be split into {parts}",
            fix="give a count from 2 on, or two and more shares above zero",
        )
    return [size / sum(sizes) for size in sizes]


def _add_launches(graph: TaskGraph, task: int, new: list[NewTask], edges: list[NewEdge]) -> None:
    known = np.flatnonzero((graph.edges.kind == EdgeKind.LAUNCH) & (graph.edges.target == task))
    if not len(known):
        raise WhatIfError(
            f"{graph.name_of(task)!r} has no recorded launch", fix="split it without launches of its parts"
        )
    launch = int(graph.edges.source[known[0]])
    for part in range(len(new)):
        edges.append((~len(new), ~part, usual_latency_us(graph), True, EdgeKind.LAUNCH))
        new.append(
            NewTask(
                name=graph.name_of(launch), kind=TaskKind.CALL, lane=int(graph.tasks.lane[launch]),
                after=launch, like=launch, duration_us=float(graph.tasks.duration_us[launch]),
                gap_us=usual_launch_gap_us(graph),
            )
        )  # fmt: skip
