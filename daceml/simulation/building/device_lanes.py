"""Streams: kernels, copies and memsets one after the other, and the calls that launched them."""

from __future__ import annotations

from daceml.profiling.trace import EventKind
from daceml.simulation.building import runtime_calls
from daceml.simulation.building.correlations import launching_calls
from daceml.simulation.building.draft import Draft, Row, device_events
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import Lane, TaskKind

_KINDS: dict[EventKind, TaskKind] = {
    EventKind.KERNEL: TaskKind.KERNEL,
    EventKind.COPY: TaskKind.COPY,
    EventKind.MEMSET: TaskKind.MEMSET,
}


def add_device_rows(draft: Draft) -> None:
    """A lane for each stream, and its rows, each with the call that launched it."""
    trace, events = draft.trace, draft.trace.events
    call_of = launching_calls(draft)
    for event in device_events(trace).tolist():
        lane = int(events.lane[event])
        if lane not in draft.stream_of_lane:
            known = trace.lanes[lane]
            draft.stream_of_lane[lane] = draft.lane(Lane(kind="stream", name=known.name, device=known.device))
        name = trace.name_of(event)
        kind = _KINDS[EventKind(int(events.kind[event]))]
        if kind is TaskKind.KERNEL and runtime_calls.COLLECTIVE.search(name):
            kind = TaskKind.COLLECTIVE
        begin_us = float(events.start_us[event])
        row = draft.add(
            Row(
                name=name, kind=kind, lane=draft.stream_of_lane[lane], event=event,
                begin_us=begin_us, start_us=begin_us, end_us=begin_us + float(events.duration_us[event]),
                size_bytes=_size_bytes(events.details[event].get("bytes")),
                launched_by=call_of.get(event, NOTHING),
            )
        )  # fmt: skip
        if draft.rows[row].launched_by != NOTHING:
            draft.launches.setdefault(draft.rows[row].launched_by, []).append(row)


def _size_bytes(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value >= 0 else float("nan")
