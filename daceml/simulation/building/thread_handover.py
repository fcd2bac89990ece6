"""One thread goes on where another one stopped: autograd's thread runs backward while the caller waits.

Without it the time of the other thread would stand frozen in a gap of the first one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from daceml.simulation.building.draft import Draft
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import EdgeKind

_LONG_US = 300.0  # a pause of a thread that may be a wait for another one


def add_handover_edges(draft: Draft) -> None:
    """For each pause of a thread that covers a burst of another thread: edges to the burst and back."""
    threads = [lane for lane in range(len(draft.lanes)) if draft.lanes[lane].kind == "cpu"]
    begins = {lane: [draft.rows[number].begin_us for number in draft.on_lane[lane]] for lane in threads}
    for lane in threads:
        members = draft.on_lane[lane]
        for earlier, later in pairwise(members):
            pause_begin_us, pause_end_us = draft.rows[earlier].end_us, draft.rows[later].begin_us
            if pause_end_us - pause_begin_us <= _LONG_US:
                continue
            for other in threads:
                if other == lane:
                    continue
                first = bisect_left(begins[other], pause_begin_us)
                last = bisect_right(begins[other], pause_end_us) - 1
                if first <= last:
                    _hand_over(draft, earlier, later, draft.on_lane[other][first], draft.on_lane[other][last])


def _hand_over(draft: Draft, earlier: int, later: int, first: int, last: int) -> None:
    """Edges to the first call of a burst and from its last one, if its thread had paused before."""
    rows = draft.rows
    before = draft.before(first)
    begin_us = rows[earlier].end_us
    if before != NOTHING and rows[before].end_us > rows[earlier].begin_us:
        return  # it was at work already: nobody woke it
    if rows[last].end_us > rows[later].begin_us:
        return
    draft.edge(earlier, first, EdgeKind.HANDOVER, lag_us=rows[first].begin_us - begin_us)
    draft.edge(last, later, EdgeKind.HANDOVER, lag_us=rows[later].begin_us - rows[last].end_us)
    rows[first].cut_gap = rows[later].cut_gap = True
