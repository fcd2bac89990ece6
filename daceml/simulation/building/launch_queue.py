"""The queue of launches is finite: a call that launches into a full one waits until the device takes work.

Without it a run that the device limits keeps its recorded waits inside the calls, and halving every kernel
seems to change nothing.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right

from daceml.simulation.building.draft import Draft
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import EdgeKind, TaskKind

USUAL_DEPTH = 1024  # CUDA's, observed as 1,021 waiting launches on a V100
_LEAST_DEPTH = 700  # a queue that held fewer was not full
_SLOW = 4.0  # times the median of its kind, above which a call is taken to have waited
_SLOW_US = 30.0


def add_queue_edges(draft: Draft, *, depth: int | None = None) -> None:
    """A launch waits until the work so many places before it on its stream has started.

    Args:
        depth: places in the queue of a stream; None takes it from calls that waited, else `USUAL_DEPTH`.
    """
    usual_us = _medians(draft)
    for lane in range(len(draft.lanes)):
        if draft.lanes[lane].kind == "stream":
            _add_to_stream(draft, lane, depth, usual_us)


def _add_to_stream(draft: Draft, lane: int, depth: int | None, usual_us: dict[str, float]) -> None:
    work = [number for number in draft.on_lane[lane] if draft.rows[number].launched_by != NOTHING]
    starts = [draft.rows[number].start_us for number in draft.on_lane[lane]]
    waited: dict[int, int] = {}  # place of the work whose launch waited -> how many waited before it
    for number in work:
        row = draft.rows[number]
        call = draft.rows[row.launched_by]
        if draft.launches[row.launched_by][0] != number or row.launched_by in draft.returns:
            continue
        slow_us = max(_SLOW * usual_us.get(call.name, 0.0), _SLOW_US)
        if call.end_us - call.begin_us > slow_us:
            waiting = row.position - bisect_right(starts, call.begin_us)
            # A call during which its own work began waited for more than room.
            if waiting >= _LEAST_DEPTH and bisect_right(starts, call.end_us) <= row.position:
                waited[row.position] = waiting
    learnt = int(statistics.median(waited.values())) if waited else USUAL_DEPTH
    places = learnt if depth is None else depth
    lag_us = _release_us(draft, lane, waited, starts)
    for number in work:
        row = draft.rows[number]
        call = draft.rows[row.launched_by]
        if draft.launches[row.launched_by][0] != number or row.launched_by in draft.returns:
            continue
        if row.position in waited:
            released = bisect_right(starts, call.end_us) - 1
            usual = usual_us.get(call.name, 0.0)
            call.start_us = max(call.begin_us, call.end_us - usual)
            if released >= 0:
                observed_us = call.start_us - starts[released]
                source = draft.on_lane[lane][released]
                draft.edge(
                    source,
                    row.launched_by,
                    EdgeKind.QUEUE,
                    lag_us=min(lag_us, max(observed_us, 0.0)),
                    from_start=True,
                )
            continue
        if row.position >= places:
            source = draft.on_lane[lane][row.position - places]
            observed_us = call.start_us - draft.rows[source].start_us
            if observed_us >= 0:
                draft.edge(
                    source, row.launched_by, EdgeKind.QUEUE, lag_us=min(lag_us, observed_us), from_start=True
                )


def _release_us(draft: Draft, lane: int, waited: dict[int, int], starts: list[float]) -> float:
    """From the start of the work that makes room to when the call that waited for it goes on."""
    lags: list[float] = []
    for position in waited:
        call = draft.rows[draft.rows[draft.on_lane[lane][position]].launched_by]
        released = bisect_right(starts, call.end_us) - 1
        if released >= 0 and starts[released] >= call.begin_us:
            lags.append(call.end_us - starts[released])
    return statistics.median(lags) if lags else 0.0


def _medians(draft: Draft) -> dict[str, float]:
    """Name of a call -> its usual duration, microseconds."""
    durations: dict[str, list[float]] = {}
    for number in draft.rows_of(TaskKind.CALL):
        row = draft.rows[number]
        durations.setdefault(row.name, []).append(row.end_us - row.begin_us)
    return {name: statistics.median(values) for name, values in durations.items()}
