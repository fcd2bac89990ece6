"""Which call launched which work: both carry one number, which no other call should carry."""

from __future__ import annotations

from daceml.errors import TraceContentError
from daceml.profiling.trace import UNKNOWN, EventKind
from daceml.simulation.building.draft import Draft, device_events

_CLOCKS_US = 3.0  # by which the clocks of host and device may disagree
_MOST_UNCLEAR = 0.2  # of the device's work


def launching_calls(draft: Draft) -> dict[int, int]:
    """Event of a device -> the row of the call that launched it, where that is known.

    Several calls that carry one number launched the work that carries it in order, one each. Where the counts
    differ, no call is known to have launched it.

    Raises:
        TraceContentError: so much is unclear that a replay would follow wrong launches.
    """
    calls = _calls(draft)
    events, work = draft.trace.events, device_events(draft.trace).tolist()
    launched: dict[int, list[int]] = {}
    for event in work:
        launched.setdefault(int(events.correlation[event]), []).append(event)
    found: dict[int, int] = {}
    shared = unclear = 0
    for number, rows in calls.items():
        theirs = launched.get(number, [])
        if len(rows) == 1:
            found.update(dict.fromkeys(theirs, rows[0]))
        elif theirs and _in_order(draft, rows, theirs):
            found.update(zip(theirs, rows, strict=True))
            shared += len(theirs)
        else:
            unclear += len(theirs)
    if unclear > _MOST_UNCLEAR * len(work):
        raise TraceContentError(
            f"{unclear} of the {len(work)} tasks of the device may be the work of several calls",
            where=draft.trace.source,
            why="the correlation that names the call of a kernel is that of other calls, too",
            fix="record again: each call of a run needs a correlation of its own",
        )
    if shared:
        draft.warnings.append(
            f"{shared} tasks of the device share their correlation with others: they are taken for work of"
            " the calls with it in the order of time"
        )
    if unclear:
        draft.warnings.append(
            f"{unclear} tasks of the device have the correlation of several calls: which one launched them"
            " is not known"
        )
    return found


def _calls(draft: Draft) -> dict[int, list[int]]:
    """Correlation -> rows of the calls that carry it, by start; an inner call has the outer one's row."""
    events = draft.trace.events
    found: dict[int, list[int]] = {}
    for event in events.of(EventKind.CALL).tolist():
        number = int(events.correlation[event])
        row = draft.task_of_event.get(draft.outer_call.get(int(event), int(event)))
        if number == UNKNOWN or row is None:
            continue
        rows = found.setdefault(number, [])
        if row not in rows[-1:]:
            rows.append(row)
    return found


def _in_order(draft: Draft, rows: list[int], work: list[int]) -> bool:
    """Whether each call may have launched the work in its place."""
    start_us = draft.trace.events.start_us
    return len(rows) == len(work) and all(
        start_us[event] >= draft.rows[row].begin_us - _CLOCKS_US
        for row, event in zip(rows, work, strict=True)
    )
