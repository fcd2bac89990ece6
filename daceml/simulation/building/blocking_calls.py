"""Calls that return when the device has done something: the wait is an edge, the rest is the call's duration.

A call that copies and waits is two tasks: one that launches the copy, and one that begins when it is done.
Where the call returns before the last part of the copy is done, the second one begins when the copy begins.
"""

from __future__ import annotations

from daceml.profiling.trace import EventKind
from daceml.simulation.building import runtime_calls
from daceml.simulation.building.draft import Draft, Row
from daceml.simulation.building.given_work import Streams
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import EdgeKind, TaskKind

_ENTRY_US = 5.0  # of a call that copies and waits: what it takes to launch the copy, at most
_CLOCKS_US = 3.0  # by which the clocks of host and device may disagree


def split_blocking_copies(draft: Draft) -> None:
    """Before the lanes are in order: the second half of each call that waits for its own copy."""
    for number, work in list(draft.launches.items()):
        call, copy = draft.rows[number], draft.rows[work[-1]]
        if copy.kind is not TaskKind.COPY or not _may_wait(call.name, copy.name):
            continue
        # Staged in parts: it returns when the last part is staged, and fills no part before the copy begins.
        staged = copy.end_us > call.end_us + _CLOCKS_US
        if copy.start_us < call.begin_us - _CLOCKS_US or (staged and copy.start_us > call.end_us):
            continue  # staged as a whole: it returned before the copy began
        done_us = min(max(copy.start_us if staged else copy.end_us, call.begin_us), call.end_us)
        entered_us = min(call.begin_us + _ENTRY_US, max(copy.start_us, call.begin_us), done_us)
        back = draft.add(
            Row(
                name=f"{call.name} returns", kind=TaskKind.CALL, lane=call.lane,
                begin_us=entered_us, start_us=done_us, end_us=call.end_us,
            )
        )  # fmt: skip
        call.end_us = entered_us
        draft.returns[number] = back
        draft.edge(work[-1], back, EdgeKind.SYNC, from_start=staged)


def _may_wait(call: str, copy: str) -> bool:
    return bool(runtime_calls.BLOCKING_COPY.match(call) or runtime_calls.PAGEABLE.search(copy))


def add_synchronization_edges(draft: Draft) -> None:
    """Let each call that synchronises wait for the work that it waited for."""
    streams = Streams(draft)
    said = _recorded(draft)
    for number in draft.rows_of(TaskKind.CALL):
        row = draft.rows[number]
        details = said.get(int(draft.trace.events.correlation[row.event])) if row.event != NOTHING else None
        if runtime_calls.is_device_synchronize(row.name):
            awaited = [streams.last_given(lane, row.begin_us) for lane in streams.work]
        elif runtime_calls.STREAM_SYNCHRONIZE.match(row.name):
            awaited = [_of_stream(draft, streams, number, details)]
        elif runtime_calls.EVENT_SYNCHRONIZE.match(row.name):
            awaited = [_of_event(draft, streams, number, details)]
        else:
            continue
        _wait(draft, number, [work for work in awaited if work != NOTHING])


def _recorded(draft: Draft) -> dict[int, dict[str, object]]:
    """Correlation of a call -> what newer profilers say that it waited for."""
    events = draft.trace.events
    return {
        int(events.correlation[event]): dict(events.details[event])
        for event in events.of(EventKind.SYNC).tolist()
        if events.correlation[event] >= 0
    }


def _wait(draft: Draft, number: int, awaited: list[int]) -> None:
    row = draft.rows[number]
    awaited = [work for work in awaited if draft.rows[work].end_us <= row.end_us + _CLOCKS_US]
    for work in awaited:
        draft.edge(work, number, EdgeKind.SYNC)
    done_us = max((draft.rows[work].end_us for work in awaited), default=row.begin_us)
    row.start_us = min(max(row.begin_us, done_us), row.end_us)


def _of_stream(draft: Draft, streams: Streams, number: int, details: dict[str, object] | None) -> int:
    """What a stream synchronisation waits for: of the stream that the profiler names, else of the stream that
    the thread used last, if it was done in time, else whatever ended last before the call did."""
    row = draft.rows[number]
    if details is not None:
        return streams.last_given(streams.lane_of(details.get("device"), details.get("stream")), row.begin_us)
    before = draft.before(number)
    while before != NOTHING and before not in draft.launches:
        before = draft.before(before)
    if before != NOTHING:
        work = streams.last_given(draft.rows[draft.launches[before][-1]].lane, row.begin_us)
        if work != NOTHING and draft.rows[work].end_us <= row.end_us + _CLOCKS_US:
            return work
    return _latest_end(draft, streams, number)


def _of_event(draft: Draft, streams: Streams, number: int, details: dict[str, object] | None) -> int:
    """What the event's stream had been given before it, if the profiler names it; else what ended last."""
    row = draft.rows[number]
    if details is None:
        return _latest_end(draft, streams, number)
    record = draft.row_of_correlation(details.get("wait_on_cuda_event_record_corr_id"))
    lane = streams.lane_of(details.get("device"), details.get("wait_on_stream"))
    if record == NOTHING or lane == NOTHING:
        return NOTHING
    return streams.last_given(lane, min(draft.rows[record].begin_us, row.begin_us))


def _latest_end(draft: Draft, streams: Streams, number: int) -> int:
    """The last work of any stream that was done when the call returned, if it ended while the call waited."""
    row = draft.rows[number]
    done = [
        work
        for lane in streams.work
        if (work := streams.last_given(lane, row.begin_us)) != NOTHING
        and row.begin_us <= draft.rows[work].end_us <= row.end_us + _CLOCKS_US
    ]
    return max(done, key=lambda work: draft.rows[work].end_us, default=NOTHING)
