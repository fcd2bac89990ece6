"""A stream that waits for an event of another stream: as the profiler recorded it, else inferred.

Older profilers record the call but not the streams. Then the work behind the wait is the next that its thread
launched, and it waits for what each other stream had been given before and had done in time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from daceml.profiling.trace import EventKind
from daceml.simulation.building import runtime_calls
from daceml.simulation.building.draft import Draft
from daceml.simulation.building.given_work import Streams
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import EdgeKind, TaskKind

_TIGHT_US = 200.0  # between the end of what was waited for and the start of what waited, where it is inferred
_DELAY_US = 20.0  # beyond launch and stream, above which a start is taken to have waited for another stream
_SOON_US = 15.0  # after the end of what it waited for
_TAIL = 0.05  # of a kernel's duration, in which its last blocks leave room for others
_LONGEST_TAIL_US = 500.0


def add_stream_waits(draft: Draft) -> None:
    """Edges between streams."""
    streams = Streams(draft)
    known = _recorded(draft, streams)
    if known:
        return
    _infer_from_calls(draft, streams)
    _infer_from_delays(draft)


def _recorded(draft: Draft, streams: Streams) -> int:
    """From events that name both streams; how many there were."""
    events, found = draft.trace.events, 0
    for event in events.of(EventKind.SYNC).tolist():
        details = events.details[event]
        if "Wait" not in str(details.get("cuda_sync_kind", draft.trace.name_of(event))):
            continue
        found += 1
        wait = draft.row_of_correlation(int(events.correlation[event]))
        record = draft.row_of_correlation(details.get("wait_on_cuda_event_record_corr_id"))
        waiting = streams.lane_of(details.get("device"), details.get("stream"))
        awaited = streams.lane_of(details.get("device"), details.get("wait_on_stream"))
        if NOTHING in (wait, record, waiting, awaited) or waiting == awaited:
            continue
        source = streams.last_given(awaited, draft.rows[record].begin_us)
        target = streams.next_given(waiting, draft.rows[wait].begin_us)
        if NOTHING not in (source, target):
            _connect(draft, source, target)
    return found


def _connect(draft: Draft, source: int, target: int) -> None:
    if draft.rows[source].end_us > draft.rows[target].start_us + 1.0:
        return  # it did not wait for this
    draft.edge(
        source,
        target,
        EdgeKind.STREAM_WAIT,
        lag_us=min(0.0, draft.rows[target].start_us - draft.rows[source].end_us),
    )


def _infer_from_calls(draft: Draft, streams: Streams) -> None:
    launches = sorted(draft.launches, key=lambda call: draft.rows[call].begin_us)
    begins = [draft.rows[call].begin_us for call in launches]
    for number in draft.rows_of(TaskKind.CALL):
        wait = draft.rows[number]
        if not runtime_calls.STREAM_WAIT.match(wait.name):
            continue
        for target in _behind(draft, launches, begins, number):
            _wait_for_others(draft, streams, wait.begin_us, target)


def _behind(draft: Draft, launches: list[int], begins: list[float], number: int) -> set[int]:
    """What may stand behind a wait: the next work that its own thread launched, or that any thread did."""
    found: set[int] = set()
    launch = draft.after(number)
    while launch != NOTHING and launch not in draft.launches:
        launch = draft.after(launch)
    if launch != NOTHING:
        found.add(draft.launches[launch][0])
    place = bisect_right(begins, draft.rows[number].begin_us)
    if place < len(launches):
        found.add(draft.launches[launches[place]][0])
    return found


def _wait_for_others(draft: Draft, streams: Streams, wait_us: float, target: int) -> None:
    """Edges from what each other stream had been given at a moment, if it ended right before the target."""
    for lane in streams.work:
        if lane == draft.rows[target].lane:
            continue
        source = streams.last_given(lane, wait_us)
        if source == NOTHING:
            continue
        gap_us = draft.rows[target].start_us - draft.rows[source].end_us
        if -1.0 <= gap_us < _TIGHT_US:
            _connect(draft, source, target)


def _infer_from_delays(draft: Draft) -> None:
    """What started late, when something of another stream was about to end or had just ended, waited for it.

    Where that one was still draining, both had no common event: the device was full.
    """
    ends = sorted((draft.rows[number].end_us, number) for number in draft.device_rows())
    times = [end_us for end_us, _ in ends]
    explained = {target for _, target, _, _, kind in draft.edges if kind is EdgeKind.STREAM_WAIT}
    for number in draft.device_rows():
        row, ready_us = draft.rows[number], draft.ready_us(number)
        if number in explained or row.start_us - ready_us <= _DELAY_US:
            continue
        low = bisect_left(times, max(row.start_us - _SOON_US, ready_us))
        high = bisect_right(times, row.start_us + _LONGEST_TAIL_US)
        candidates = [source for _, source in ends[low:high] if _may_have_held_back(draft, source, number)]
        if not candidates:
            continue
        source = min(candidates, key=lambda other: abs(draft.rows[other].end_us - row.start_us))
        lag_us = row.start_us - draft.rows[source].end_us
        kind = EdgeKind.STREAM_WAIT if lag_us >= 0.0 else EdgeKind.CONTENTION
        draft.edge(source, number, kind, lag_us=min(lag_us, 0.0))


def _may_have_held_back(draft: Draft, source: int, number: int) -> bool:
    other, row = draft.rows[source], draft.rows[number]
    if other.lane == row.lane or draft.lanes[other.lane].device != draft.lanes[row.lane].device:
        return False
    tail_us = max(_SOON_US, _TAIL * (other.end_us - other.start_us))
    return other.start_us < row.start_us and other.end_us - row.start_us <= tail_us
