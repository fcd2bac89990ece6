"""Who stands before and after each task: what a replay walks along, found once for a graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daceml.simulation import loops
from daceml.simulation.compiled import engine_for, run

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Structure:
    """Neighbours of n tasks that m edges join.

    Attributes:
        before: [n] the task before on the same ordered lane, -1 for the first one and on free lanes.
        after: [n] the task after, likewise.
        in_start: [n + 1] where the edges into each task begin in `in_edge`.
        in_edge: [m] numbers of edges, by target.
        in_source: [m] the source of each of these.
        out_start: [n + 1] where the edges out of each task begin in `out_edge`.
        out_edge: [m] numbers of edges, by source.
        out_target: [m] the target of each of these.
    """

    before: Ints
    after: Ints
    in_start: Ints
    in_edge: Ints
    in_source: Ints
    out_start: Ints
    out_edge: Ints
    out_target: Ints

    @classmethod
    def of(cls, lane: Ints, ordered: Mask, source: Ints, target: Ints) -> Structure:
        """From the lane of each task, whether each lane is ordered, and the ends of each edge."""
        count = len(lane)
        before = np.full(count, -1, np.int64)
        after = np.full(count, -1, np.int64)
        # Numbers of 16 bits, which lanes hardly exceed, are sorted ten times as fast.
        by_lane = np.argsort(lane.astype(np.int16) if len(ordered) < 2**15 else lane, kind="stable")
        first, second = by_lane[:-1], by_lane[1:]
        same = (lane[first] == lane[second]) & ordered[lane[first]] if count else np.zeros(0, np.bool_)
        before[second[same]] = first[same]
        after[first[same]] = second[same]
        in_start, in_edge = _rows(target, count)
        out_start, out_edge = _rows(source, count)
        return cls(
            before=before,
            after=after,
            in_start=in_start,
            in_edge=in_edge,
            in_source=source[in_edge],
            out_start=out_start,
            out_edge=out_edge,
            out_target=target[out_edge],
        )

    @cached_property
    def order(self) -> Ints:
        """Tasks such that each stands behind all that it waits for; fewer than n where there is a cycle."""
        count = len(self.before)
        waits, order = np.zeros(count, np.int64), np.zeros(count, np.int64)
        neighbours = (self.before, self.after, self.in_start, self.out_start, self.out_target)
        filled = run(loops.topological_order, neighbours, (waits, order), engine=engine_for(count))
        return order[:filled]

    @cached_property
    def position_of(self) -> Ints:
        """[n] where each task stands in `order`, if all do."""
        position = np.zeros(len(self.before), np.int64)
        position[self.order] = np.arange(len(self.order))
        return position

    def cycle(self) -> list[int]:
        """Tasks of which each waits for the one before it and the first for the last; empty where none do."""
        left = np.ones(len(self.before), np.bool_)
        left[self.order] = False
        if not left.any():
            return []
        # Whatever is left waits for something that is left, so walking back comes round.
        walked: dict[int, int] = {}
        task = int(np.flatnonzero(left)[0])
        while task not in walked:
            walked[task] = len(walked)
            into = self.in_source[self.in_start[task] : self.in_start[task + 1]]
            waited_for = [int(self.before[task])] if self.before[task] >= 0 else []
            task = next(source for source in waited_for + into.tolist() if left[source])
        return list(walked)[walked[task] :][::-1]


def _rows(of: Ints, count: int) -> tuple[Ints, Ints]:
    """Compressed rows: the edges at each task."""
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(of, minlength=count), out=start[1:])
    if engine_for(count) == "python":
        return start, np.argsort(of, kind="stable").astype(np.int64)
    edges = np.zeros(len(of), np.int64)
    run(loops.group, (of, start[:-1].copy()), (edges,), engine="numba")
    return start, edges
