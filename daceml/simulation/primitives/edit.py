"""Taking tasks out of a graph and putting tasks in: what every structural primitive is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import TaskGraphError
from daceml.simulation.graph import NOTHING, Edges, Mask, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

Ints = NDArray[np.int64]


def without(graph: TaskGraph, mask: Mask, *, keep_gaps: bool = False) -> TaskGraph:
    """The graph without some tasks; who waited for one of them waits for what stood before it on its lane.

    What one of them waited for, the next task of its lane waits for, and whoever waited for it. But a launch
    that is gone releases its kernels and needs no room in the queue, a call that is gone does not wait for
    the device, a kernel that is gone needs no launch and keeps no other one from starting.

    Args:
        mask: [n] the tasks to take out.
        keep_gaps: the time before a removed task stays, as the gap of the next one. Else it goes with it, but
            for that before the first task of a lane.
    """
    if mask.shape != (len(graph),):
        raise TaskGraphError(
            f"a mask of shape {mask.shape} for {len(graph)} tasks", fix="select from the graph that is edited"
        )
    kept = np.flatnonzero(~mask)
    place = np.full(len(graph), NOTHING, np.int64)
    place[kept] = np.arange(len(kept))
    before, after, carried_us = _kept_neighbours(graph, mask)
    edges = graph.edges
    gone_source, gone_target = mask[edges.source], mask[edges.target]
    source = np.where(gone_source, before[edges.source], edges.source)
    target = np.where(gone_target, after[edges.target], edges.target)
    stays = (source != NOTHING) & (target != NOTHING) & (source != target)
    stays &= ~(np.isin(edges.kind, (EdgeKind.LAUNCH, EdgeKind.CONTENTION)) & (gone_source | gone_target))
    stays &= ~(np.isin(edges.kind, (EdgeKind.QUEUE, EdgeKind.SYNC)) & gone_target)
    new_edges = Edges(
        source=place[source[stays]],
        target=place[target[stays]],
        lag_us=edges.lag_us[stays],
        from_start=(edges.from_start & ~gone_source)[stays],
        kind=edges.kind[stays],
    )
    gap_us = graph.tasks.gap_us + carried_us if keep_gaps else _begun_as_before(graph, mask)
    tasks = dataclasses.replace(graph.tasks.taken(kept), gap_us=gap_us[kept])
    implied = (gone_source | gone_target)[stays] & _on_one_lane(graph, tasks, new_edges)
    through = _through(graph, mask, place)
    through = through.taken(~_on_one_lane(graph, tasks, through))
    return dataclasses.replace(graph, tasks=tasks, edges=Edges.joined([new_edges.taken(~implied), through]))


_CARRIED = (EdgeKind.STREAM_WAIT, EdgeKind.HANDOVER, EdgeKind.CHANNEL, EdgeKind.USER)


def _through(graph: TaskGraph, mask: Mask, place: Ints) -> Edges:
    """Edges from what a removed task waited for to who waited for it, as if it took no time."""
    edges = graph.edges
    carried = np.isin(edges.kind, (*_CARRIED, EdgeKind.SYNC)) & ~edges.from_start
    entering: dict[int, list[int]] = {}
    for edge in np.flatnonzero(
        np.isin(edges.kind, _CARRIED) & ~edges.from_start & mask[edges.target] & ~mask[edges.source]
    ).tolist():
        entering.setdefault(int(edges.target[edge]), []).append(edge)
    rows: list[tuple[int, int, float, bool, EdgeKind]] = []
    for edge in np.flatnonzero(carried & mask[edges.source] & ~mask[edges.target]).tolist():
        for other in entering.get(int(edges.source[edge]), ()):
            source, target = int(place[edges.source[other]]), int(place[edges.target[edge]])
            lag_us = float(edges.lag_us[other] + edges.lag_us[edge])
            rows.append((source, target, lag_us, False, EdgeKind(int(edges.kind[edge]))))
    return Edges.of(rows)


def _begun_as_before(graph: TaskGraph, mask: Mask) -> NDArray[np.float64]:
    """The gaps; that of the first task of a lane says when the lane begins, and stays with the first one.

    A task that ended before the one before it, as kernels that overlap can, let the next one start so much
    earlier: without it that one still does.
    """
    gap_us = graph.tasks.gap_us.copy()
    for lane in range(len(graph.lanes)):
        members = graph.lane_members(lane)
        stays = ~mask[members]
        kept = members[stays]
        if not graph.lanes[lane].ordered or not len(kept) or len(kept) == len(members):
            continue
        advanced_us = gap_us[members] + graph.tasks.duration_us[members]  # of the end of the lane's last task
        sums_us = np.concatenate([[0.0], np.cumsum(np.where(stays, 0.0, advanced_us))])[:-1][stays]
        between_us = np.diff(sums_us, prepend=0.0)
        if stays[0]:
            gap_us[kept] += np.minimum(between_us, 0.0)
        else:
            gap_us[kept[1:]] += np.minimum(between_us[1:], 0.0)
            first_us = float(gap_us[members[0]])
            gap_us[kept[0]] = min(first_us, float(between_us[0] + gap_us[kept[0]]))
    return gap_us


def _kept_neighbours(graph: TaskGraph, mask: Mask) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """For each task the kept one before and after on its lane, and the gaps removed right before it."""
    before = np.full(len(graph), NOTHING, np.int64)
    after = np.full(len(graph), NOTHING, np.int64)
    carried_us = np.zeros(len(graph))
    for lane in range(len(graph.lanes)):
        members = graph.lane_members(lane)
        if not len(members) or not graph.lanes[lane].ordered:
            continue
        stays = ~mask[members]
        steps = np.arange(len(members))
        last = np.maximum.accumulate(np.where(stays, steps, -1))
        following = np.minimum.accumulate(np.where(stays, steps, len(members))[::-1])[::-1]
        before[members] = np.where(last >= 0, members[np.maximum(last, 0)], NOTHING)
        after[members] = np.where(
            following < len(members), members[np.minimum(following, len(members) - 1)], NOTHING
        )
        gaps_us = np.concatenate([[0.0], np.cumsum(np.where(stays, 0.0, graph.tasks.gap_us[members]))])
        kept = np.flatnonzero(stays)
        carried_us[members[kept]] = np.diff(np.concatenate([[0.0], gaps_us[kept]]))
    return before, after, carried_us


def _on_one_lane(graph: TaskGraph, tasks: Tasks, edges: Edges) -> Mask:
    """Which edges join tasks of one ordered lane: once moved along it, its order implies them."""
    ordered = np.array([lane.ordered for lane in graph.lanes], np.bool_)
    lane = tasks.lane[edges.source]
    return (lane == tasks.lane[edges.target]) & ordered[lane]


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to put in.

    Attributes:
        after: index of the task behind which it goes; None puts it last on its lane, `FIRST` first.
        like: index of a task whose layer, operator, phase and step it shares.
    """

    name: str
    kind: TaskKind
    lane: int
    duration_us: float
    after: int | None = None
    gap_us: float = 0.0
    like: int | None = None
    layer: str | None = None
    operator: str | None = None
    phase: Phase | None = None
    step: int | None = None
    size_bytes: float = float("nan")
    priority: float = 0.0


FIRST = -1

# (source, target, lag_us, from_start, kind): an index of the graph, or ~k for the k-th new task
NewEdge = tuple[int, int, float, bool, EdgeKind]


def with_tasks(
    graph: TaskGraph,
    tasks: Sequence[NewTask],
    edges: Sequence[NewEdge] = (),
    *,
    lanes: Sequence[Lane] = (),
) -> TaskGraph:
    """The graph with more tasks and edges.

    Args:
        tasks: those that go behind the same task stand in this order.
        edges: ends are indices of `graph`, or ~k for the k-th of `tasks`.
        lanes: new ones; the first has number `len(graph.lanes)`.
    Raises:
        TaskGraphError: a lane or an index that does not exist, a task behind one of another lane.
    """
    all_lanes = (*graph.lanes, *lanes)
    known, new_key = {name: index for index, name in enumerate(graph.names)}, _next_key(graph)
    rows = [_row(graph, task, all_lanes, known, new_key + k) for k, task in enumerate(tasks)]
    joined = Tasks(
        **{
            field.name: np.concatenate(
                [
                    old := getattr(graph.tasks, field.name),
                    np.array([row[field.name] for row in rows], old.dtype),
                ]
            )
            for field in dataclasses.fields(Tasks)
        }
    )
    count = len(graph)
    anchors = np.array([float(count if t.after is None else t.after) for t in tasks])
    keys = np.concatenate([np.arange(count, dtype=np.float64), anchors + 0.5])
    order = np.argsort(keys, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))

    def moved(end: int) -> int:
        index = end if end >= 0 else count + ~end
        if not 0 <= index < len(place):
            raise TaskGraphError(
                f"an edge ends at task {end}", fix=f"there are {count} and {len(tasks)} new ones"
            )
        return int(place[index])

    added = Edges.of((moved(a), moved(b), lag, start, kind) for a, b, lag, start, kind in edges)
    old = dataclasses.replace(graph.edges, source=place[graph.edges.source], target=place[graph.edges.target])
    return dataclasses.replace(
        graph,
        tasks=joined.taken(order),
        edges=Edges.joined([old, added]),
        lanes=all_lanes,
        names=tuple(known),
    )


def _next_key(graph: TaskGraph) -> int:
    return int(graph.tasks.key.max()) + 1 if len(graph) else 0


def _row(
    graph: TaskGraph, task: NewTask, lanes: Sequence[Lane], names: dict[str, int], key: int
) -> dict[str, float]:
    if not 0 <= task.lane < len(lanes):
        raise TaskGraphError(f"new task {task.name!r} is on lane {task.lane}", fix=f"there are {len(lanes)}")
    if task.like is not None and not 0 <= task.like < len(graph):
        raise TaskGraphError(f"new task {task.name!r} is like task {task.like}", fix="give an index")
    anchor = task.after
    if anchor is not None and anchor != FIRST:
        if not 0 <= anchor < len(graph):
            raise TaskGraphError(f"new task {task.name!r} goes behind task {anchor}", fix="give an index")
        if graph.tasks.lane[anchor] != task.lane:
            raise TaskGraphError(
                f"new task {task.name!r} on {lanes[task.lane].name!r} goes behind {graph.name_of(anchor)!r}"
                f" on {lanes[graph.tasks.lane[anchor]].name!r}",
                fix="give a task of the same lane",
            )

    def index(name: str | None, column: str) -> int:
        if name is None:
            return NOTHING if task.like is None else int(getattr(graph.tasks, column)[task.like])
        return names.setdefault(name, len(names)) if name else NOTHING

    like = task.like
    return {
        "key": key,
        "name": names.setdefault(task.name, len(names)),
        "layer": index(task.layer, "layer"),
        "operator": index(task.operator, "operator"),
        "kind": task.kind,
        "phase": task.phase
        if task.phase is not None
        else Phase.OTHER
        if like is None
        else graph.tasks.phase[like],
        "lane": task.lane,
        "step": task.step if task.step is not None else NOTHING if like is None else graph.tasks.step[like],
        "duration_us": task.duration_us,
        "gap_us": task.gap_us,
        "recorded_us": float("nan"),
        "size_bytes": task.size_bytes,
        "priority": task.priority,
    }
