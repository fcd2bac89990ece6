"""CPU threads: calls of the runtime one after the other, and batches that are loaded.

What a thread does between two calls is the gap before the second one, as in Daydream. A run without a device
has no calls worth a name; there each outermost operator of the framework is a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from daceml.profiling.trace import EventKind
from daceml.simulation.building import runtime_calls
from daceml.simulation.building.attribution import is_wrapper
from daceml.simulation.building.draft import Draft, Row, device_events
from daceml.simulation.task import Lane, TaskKind

DATA_LOADER = "enumerate(DataLoader)"


def add_cpu_rows(draft: Draft) -> None:
    """A lane for each thread that does something for the run, and its rows."""
    trace = draft.trace
    with_device = len(device_events(trace)) > 0
    kinds = (EventKind.CALL,) if with_device else (EventKind.OPERATOR,)
    of_lane: dict[int, list[int]] = {}
    for event in trace.events.of(*kinds).tolist():
        of_lane.setdefault(int(trace.events.lane[event]), []).append(event)
    idle = 0
    for lane, events in of_lane.items():
        members = _calls(draft, events) if with_device else _outermost_operators(draft, events)
        if not members:
            idle += 1
            continue
        number = draft.lane(Lane(kind="cpu", name=trace.lanes[lane].name))
        draft.thread_of_lane[lane] = number
        kind = TaskKind.CALL if with_device else TaskKind.OPERATOR
        for event in members:
            begin_us = float(trace.events.start_us[event])
            end_us = begin_us + float(trace.events.duration_us[event])
            draft.add(
                Row(
                    name=trace.name_of(event), kind=kind, lane=number, event=event,
                    begin_us=begin_us, start_us=begin_us, end_us=end_us,
                )
            )  # fmt: skip
    if idle:
        draft.notes.append(f"{idle} threads that only ask the device for its state are left out")
    _add_loaded_batches(draft)


def _calls(draft: Draft, events: Sequence[int]) -> list[int]:
    """The outermost calls of a thread that do more than ask; inner ones answer to the outer one's row."""
    trace = draft.trace
    members: list[int] = []
    outer_end_us = -np.inf
    for event in events:
        start_us = float(trace.events.start_us[event])
        end_us = start_us + float(trace.events.duration_us[event])
        if end_us <= outer_end_us and members:
            draft.outer_call[event] = members[-1]
        elif not runtime_calls.QUERY.match(trace.name_of(event)):
            members.append(event)
            outer_end_us = end_us
    return members


def _outermost_operators(draft: Draft, events: Sequence[int]) -> list[int]:
    """Operators that no other operator called; autograd's own frames around them do not count."""
    trace = draft.trace
    members: list[int] = []
    end_us = -np.inf
    for event in events:
        start_us = float(trace.events.start_us[event])
        if start_us >= end_us and not is_wrapper(trace.name_of(event)):
            members.append(event)
            end_us = start_us + float(trace.events.duration_us[event])
    return members


def _add_loaded_batches(draft: Draft) -> None:
    """The time that a thread loads a batch in, between its calls, is a task of its own, and no gap."""
    trace = draft.trace
    taken = {name for name in range(len(trace.names)) if trace.names[name].startswith(DATA_LOADER)}
    busy: dict[int, list[tuple[float, float]]] = {}
    for row in draft.rows:
        busy.setdefault(row.lane, []).append((row.begin_us, row.end_us))
    for spans in busy.values():
        spans.sort()
    for event in trace.events.of(EventKind.OPERATOR, EventKind.ANNOTATION).tolist():
        lane = draft.thread_of_lane.get(int(trace.events.lane[event]))
        if lane is None or int(trace.events.name[event]) not in taken:
            continue
        begin_us = float(trace.events.start_us[event])
        whole = (begin_us, begin_us + float(trace.events.duration_us[event]))
        for piece_begin_us, piece_end_us in _outside(whole, busy.get(lane, ())):
            draft.add(
                Row(
                    name=trace.name_of(event), kind=TaskKind.DATA, lane=lane,
                    begin_us=piece_begin_us, start_us=piece_begin_us, end_us=piece_end_us,
                )
            )  # fmt: skip


def _outside(whole: tuple[float, float], spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The parts of an interval that no span covers."""
    pieces: list[tuple[float, float]] = []
    at, end = whole
    for span_begin, span_end in spans:
        if span_end <= at or span_begin >= end:
            continue
        if span_begin > at:
            pieces.append((at, span_begin))
        at = max(at, span_end)
    if end > at:
        pieces.append((at, end))
    return pieces
