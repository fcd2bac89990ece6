"""Who stands before and after each task: what a replay walks along, found once for a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
        out_start: [n + 1] where the edges out of each task begin in `out_edge`.
        out_edge: [m] numbers of edges, by source.
    """

    before: Ints
    after: Ints
    in_start: Ints
    in_edge: Ints
    out_start: Ints
    out_edge: Ints

    @classmethod
    def of(cls, lane: Ints, ordered: Mask, source: Ints, target: Ints) -> Structure:
        """From the lane of each task, whether each lane is ordered, and the ends of each edge."""
        count = len(lane)
        before = np.full(count, -1, np.int64)
        after = np.full(count, -1, np.int64)
        by_lane = np.argsort(lane, kind="stable")
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
            out_start=out_start,
            out_edge=out_edge,
        )


def _rows(of: Ints, count: int) -> tuple[Ints, Ints]:
    """Compressed rows: the edges at each task."""
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(of, minlength=count), out=start[1:])
    return start, np.argsort(of, kind="stable").astype(np.int64)
