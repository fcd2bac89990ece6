"""Ranks that do the same at the same time, and one of each kind instead of all: a graph in, a graph out.

Two ordered lanes are equal if, task by task, they have the same columns and wait for equal tasks: those at
one place of equal lanes, with the same lags. A task starts at the latest of what it waits for, however often
that is there, so equal tasks start at one time, and a replay of one lane of each kind is one of all. This
is the coarsest partition that is stable (Paige and Tarjan, Three partition refinement algorithms, SIAM J.
Comput. '87), found by refinement of 64-bit hashes: by chance, two of n lanes that differ are taken for equal
once in 2^65 / n^2 graphs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import SymmetryError
from daceml.simulation.graph import TaskGraph

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

# What says nothing of what a task does, or when
_LEFT_OUT = ("key", "lane", "recorded_us")


@dataclass(frozen=True, kw_only=True, eq=False)
class Folded:
    """A graph with one lane of each kind.

    Attributes:
        task_of: [n] of each task of the graph that was folded, the one that stands for it: the times of all
            are those of a schedule of `graph`, taken at `task_of`.
        lane_of: [lanes] likewise.
    """

    graph: TaskGraph
    task_of: Ints
    lane_of: Ints


def fold(graph: TaskGraph) -> Folded:
    """One lane for all that are equal to it.

    Raises:
        SymmetryError: a lane is not ordered, so that a policy decides what runs first.
    """
    for lane in graph.lanes:
        if not lane.ordered:
            raise SymmetryError(
                f"lane {lane.name!r} is not ordered, so that equal ranks may take turns",
                where=graph.source,
                fix="fold before collectives are expanded into links, or replay all ranks",
            )
    count, lanes = len(graph), len(graph.lanes)
    position = _positions(graph)
    columns = _columns_hash(graph) ^ _mixed(position.astype(np.uint64))
    kind = _classes(_summed(graph.tasks.lane, _mixed(columns), lanes))
    while True:
        refined = _classes(kind.astype(np.uint64) + _mixed(_waits_hash(graph, position, kind)))
        if refined.max(initial=-1) == kind.max(initial=-1):
            break
        kind = refined
    first = np.full(int(kind.max(initial=-1)) + 1, lanes, np.int64)
    np.minimum.at(first, kind, np.arange(lanes))
    stays = np.zeros(lanes, np.bool_)
    stays[first] = True
    new_lane = np.cumsum(stays) - 1
    kept = stays[graph.tasks.lane]
    new_task = np.cumsum(kept) - 1
    # the task at the same place of the lane that stands for its lane
    begins = np.zeros(lanes + 1, np.int64)
    np.cumsum(np.bincount(graph.tasks.lane, minlength=lanes), out=begins[1:])
    by_lane = np.argsort(graph.tasks.lane, kind="stable")
    same = by_lane[begins[first[kind[graph.tasks.lane]]] + position] if count else by_lane
    task_of = new_task[same]
    tasks = dataclasses.replace(
        graph.tasks.taken(kept), lane=new_lane[graph.tasks.lane[kept]].astype(np.int64)
    )
    wanted = kept[graph.edges.target]
    edges = graph.edges.taken(wanted)
    edges = dataclasses.replace(edges, source=task_of[edges.source], target=task_of[edges.target])
    rows = np.stack(
        [edges.source, edges.target, edges.lag_us.view(np.int64), edges.from_start.astype(np.int64)]
    )
    edges = edges.taken(np.sort(np.unique(rows, axis=1, return_index=True)[1]) if len(edges) else wanted[:0])
    return Folded(
        graph=dataclasses.replace(
            graph, tasks=tasks, edges=edges, lanes=tuple(graph.lanes[lane] for lane in np.flatnonzero(stays))
        ),
        task_of=task_of,
        lane_of=new_lane[first[kind]],
    )


def _positions(graph: TaskGraph) -> Ints:
    """[n] how many tasks of its lane are before each."""
    lane = graph.tasks.lane
    by_lane = np.argsort(lane, kind="stable")
    begins = np.zeros(len(graph.lanes) + 1, np.int64)
    np.cumsum(np.bincount(lane, minlength=len(graph.lanes)), out=begins[1:])
    position = np.empty(len(graph), np.int64)
    position[by_lane] = np.arange(len(graph)) - begins[lane[by_lane]]
    return position


def _columns_hash(graph: TaskGraph) -> Hashes:
    """[n] of what tasks are and how long they take."""
    found = np.zeros(len(graph), np.uint64)
    for column in dataclasses.fields(graph.tasks):
        if column.name not in _LEFT_OUT:
            values = np.ascontiguousarray(getattr(graph.tasks, column.name))
            found = _mixed(found ^ values.view(np.uint64))
    return found


def _waits_hash(graph: TaskGraph, position: Ints, kind: Ints) -> Hashes:
    """[lanes] of the set of what each task waits for, by kinds of lanes."""
    edges, lane = graph.edges, graph.tasks.lane
    one = _mixed(kind[lane[edges.source]].astype(np.uint64))
    one = _mixed(one ^ position[edges.source].astype(np.uint64))
    one = _mixed(one ^ np.ascontiguousarray(edges.lag_us).view(np.uint64))
    one = _mixed(one ^ edges.from_start.astype(np.uint64))
    # twice the same is once: a task of many ranks waits for all that are equal as for one of them
    order = np.lexsort((one, edges.target))
    target, one = edges.target[order], one[order]
    again = np.zeros(len(one), np.bool_)
    again[1:] = (target[1:] == target[:-1]) & (one[1:] == one[:-1])
    waits = _summed(target[~again], one[~again], len(graph))
    return _summed(lane, _mixed(waits ^ _mixed(position.astype(np.uint64))), len(graph.lanes))


def _summed(group: Ints, values: Hashes, count: int) -> Hashes:
    """[count] sums of 64 bits, which no order changes."""
    order = np.argsort(group, kind="stable")
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values[order], dtype=np.uint64)])
    ends = np.cumsum(np.bincount(group, minlength=count))
    return total[ends] - total[np.concatenate([np.zeros(1, np.int64), ends[:-1]])]


def _classes(values: Hashes) -> Ints:
    """[n] numbers from 0, equal where values are."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _mixed(values: Hashes) -> Hashes:
    """Spread over 64 bits (Steele et al., SplitMix64, OOPSLA '14)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
