"""Waits that contradict each other: clocks that disagree let a task wait for what waits for the task itself.

Lanes and launches are recorded, all other waits are concluded from times: each cycle contains one of these.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from daceml.simulation.graph import Ints, TaskGraph
from daceml.simulation.task import EdgeKind

# The kinds that are concluded, the least certain first
_CONCLUDED = (
    EdgeKind.CONTENTION,
    EdgeKind.QUEUE,
    EdgeKind.HANDOVER,
    EdgeKind.STREAM_WAIT,
    EdgeKind.SYNC,
    EdgeKind.CHANNEL,
)


_SINGLY = (
    100  # cycles that lose one wait each; a recording with more of them loses all waits that may be wrong
)


def without_contradictions(graph: TaskGraph) -> TaskGraph:
    """Return the graph without one concluded wait of each cycle; a note says how many were left out."""
    left_out, before = 0, len(graph.edges)
    while len(cycle := graph.structure.cycle()):
        concluded = _between(graph, np.array(cycle, np.int64))
        if not len(concluded):
            return graph  # a simulation names the tasks of the cycle
        if left_out < _SINGLY:
            kinds = {edge: EdgeKind(graph.edges.kind[edge]) for edge in concluded.tolist()}
            concluded = min(kinds.items(), key=lambda item: _CONCLUDED.index(item[1]))[0]
        else:
            concluded = _among_waiting(graph)
        kept = np.ones(len(graph.edges), np.bool_)
        kept[concluded] = False
        graph = dataclasses.replace(graph, edges=graph.edges.taken(kept))
        left_out = before - len(graph.edges)
    if not left_out:
        return graph
    note = (
        f"{left_out} waits contradict others, as where clocks of host and device disagree, and were left out"
    )
    return dataclasses.replace(graph, notes=(*graph.notes, note))


def _between(graph: TaskGraph, cycle: Ints) -> Ints:
    """Concluded edges that lead from a task of a cycle to the next one."""
    following = np.full(len(graph), -1, np.int64)
    following[cycle] = np.roll(cycle, -1)
    edges = graph.edges
    return np.flatnonzero((following[edges.source] == edges.target) & np.isin(edges.kind, _CONCLUDED))


def _among_waiting(graph: TaskGraph) -> Ints:
    """Concluded edges between tasks of which no order is known."""
    waiting = np.ones(len(graph), np.bool_)
    waiting[graph.structure.order] = False
    edges = graph.edges
    inside = waiting[edges.source] & waiting[edges.target]
    return np.flatnonzero(inside & np.isin(edges.kind, _CONCLUDED))
