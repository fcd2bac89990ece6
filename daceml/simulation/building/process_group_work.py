"""Collectives of runs without a device: what gloo or MPI does on threads of their own while others compute.

torch's backends of the CPU annotate their work ("gloo:all_reduce") on the thread that does it; the operator
that asked for it ("c10d::allreduce_") returns at once. Who waits for it later calls nothing that is recorded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque

from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.building.draft import Draft, Row
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import EdgeKind, Lane, TaskKind

WORK = re.compile(r"^(gloo|mpi|ucc):\w+")
_OPERATOR = re.compile(r"^c10d::")
_SOON_US = 2000.0  # after the end of work, in which the thread that waited for it is woken up


def launching_operators(trace: Trace) -> dict[int, int]:
    """Event of a backend's work -> that of the operator that asked for it.

    The k-th work of one kind belongs to the k-th operator of that kind, in the order of their starts.
    """
    events = trace.events
    asked: defaultdict[str, deque[int]] = defaultdict(deque)
    works: list[int] = []
    for event in events.of(EventKind.OPERATOR, EventKind.ANNOTATION).tolist():
        name = trace.name_of(event)
        if _OPERATOR.match(name):
            asked[_plain(name)].append(event)
        elif WORK.match(name):
            works.append(event)
    found: dict[int, int] = {}
    for work in works:
        queue = asked[_plain(trace.name_of(work))]
        if queue and events.start_us[queue[0]] <= events.start_us[work]:
            found[work] = queue.popleft()
    return found


def _plain(name: str) -> str:
    """Of both spellings: "c10d::_allgather_base_" and "gloo:all_gather" are "allgather"."""
    plain = name.split(":")[-1].replace("_", "")
    for ending in ("base", "coalesced", "intotensor", "tensor", "single"):
        plain = plain.removesuffix(ending)
    return plain


def add_process_group_rows(draft: Draft) -> None:
    """A lane for each thread that works for a process group, and its work, launched by an operator."""
    trace, events = draft.trace, draft.trace.events
    lanes: dict[int, int] = {}
    for work, operator in launching_operators(trace).items():
        launch = draft.task_of_event.get(operator)
        if launch is None:
            continue  # an operator within another one, or a run with a device
        thread = int(events.lane[work])
        if thread not in lanes:
            name = f"channel of {trace.lanes[thread].name}"
            lanes[thread] = draft.lane(Lane(kind="channel", name=name))
        start_us, end_us = float(events.start_us[work]), float(events.end_us[work])
        row = draft.add(
            Row(
                name=trace.name_of(work), kind=TaskKind.COLLECTIVE, lane=lanes[thread],
                begin_us=start_us, start_us=start_us, end_us=end_us, launched_by=launch,
            )
        )  # fmt: skip
        draft.launches.setdefault(launch, []).append(row)


def add_process_group_waits(draft: Draft) -> None:
    """A thread that did nothing when work ended which it had asked for, was waiting for it.

    What it did next waits for the end of the work; the time before is no gap of the thread. Where the thread
    was busy at that moment, it came to wait later, if at all: what is next there waits for it no longer.
    """
    begins: dict[int, list[float]] = {}
    for number, row in enumerate(list(draft.rows)):
        if row.kind is not TaskKind.COLLECTIVE or draft.lanes[row.lane].kind != "channel":
            continue
        if row.launched_by == NOTHING:
            continue
        lane = draft.rows[row.launched_by].lane
        members = draft.on_lane[lane]
        if lane not in begins:
            begins[lane] = [draft.rows[member].begin_us for member in members]
        place = bisect_right(begins[lane], row.end_us)
        if place >= len(members):
            continue
        following = draft.rows[members[place]]
        idle = place == 0 or draft.rows[members[place - 1]].end_us <= row.end_us
        if idle and following.begin_us - row.end_us <= _SOON_US:
            lag_us = following.begin_us - row.end_us
            draft.edge(number, members[place], EdgeKind.SYNC, lag_us=lag_us)
            following.cut_gap = True
