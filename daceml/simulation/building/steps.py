"""Steps as the profiler or a serving engine marked them, and which task belongs to which."""

from __future__ import annotations

import re
from bisect import bisect_right

from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.building.draft import Draft, Row
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import TaskKind

# Families of marks; the first that a trace has counts. torch's profiler, SGLang, then vLLM and xDiT
MARKS = (
    re.compile(r"^ProfilerStep#\d+$"),
    re.compile(r"^step\[\w+ .*\]$"),
    re.compile(r"^execute_(?:\d+_)?(?:context|diffusion)_"),
)
# By how much two steps that follow each other may seem to overlap: times are rounded
_ROUNDED_US, _ROUNDED = 2.0, 0.01


def add_step_markers(draft: Draft) -> None:
    """A marker where each step begins and one where it ends, on the thread that runs the loop.

    A trace without marks is one step, from its first task to its last one; it gets no markers.
    """
    trace = draft.trace
    marks = _disjoint(draft, _marks(trace))
    threads = [int(trace.events.lane[event]) for event in marks]
    if not marks:
        begin_us = min((row.begin_us for row in draft.rows), default=0.0)
        draft.steps = [("whole trace", begin_us, max((row.end_us for row in draft.rows), default=0.0))]
        draft.notes.append("no step is marked (torch.profiler.profile.step): the whole trace counts as one")
        return
    thread = max(set(threads), key=threads.count)
    elsewhere = len(marks) - threads.count(thread)
    if elsewhere:
        draft.notes.append(f"{elsewhere} marks of steps on other threads are ignored")
    lane = draft.thread_of_lane.get(thread)
    for event in marks:
        if int(trace.events.lane[event]) != thread:
            continue
        begin_us = float(trace.events.start_us[event])
        end_us = begin_us + float(trace.events.duration_us[event])
        draft.steps.append((trace.name_of(event), begin_us, end_us))
        if lane is None:
            continue
        for time_us, what in ((begin_us, "begins"), (end_us, "ends")):
            moment_us = _not_inside(draft, lane, time_us)
            draft.add(
                Row(
                    name=f"{trace.name_of(event)} {what}", kind=TaskKind.MARKER, lane=lane,
                    begin_us=moment_us, start_us=moment_us, end_us=moment_us,
                    step=len(draft.steps) - 1,
                )
            )  # fmt: skip


def _marks(trace: Trace) -> list[int]:
    events = trace.events.of(EventKind.ANNOTATION, EventKind.OPERATOR).tolist()
    for family in MARKS:
        if marks := [event for event in events if family.match(trace.name_of(event))]:
            return marks
    return []


def _disjoint(draft: Draft, marks: list[int]) -> list[int]:
    """The largest number of marks of which no two on one thread overlap, in order."""
    events = draft.trace.events
    until_us: dict[int, float] = {}
    kept: list[int] = []
    for event in sorted(marks, key=lambda mark: float(events.end_us[mark])):
        lane, begin_us, end_us = int(events.lane[event]), events.start_us[event], events.end_us[event]
        rounded_us = max(_ROUNDED_US, _ROUNDED * float(end_us - begin_us))
        if begin_us >= until_us.get(lane, 0.0) - rounded_us:
            kept.append(event)
            until_us[lane] = float(end_us)
    if len(kept) < len(marks):
        draft.warnings.append(
            f"{len(marks) - len(kept)} of {len(marks)} marks of steps overlap others and are ignored:"
            " times of steps may be wrong"
        )
    return kept


def _not_inside(draft: Draft, lane: int, time_us: float) -> float:
    """A moment that no call of the lane covers: of one that lasts, the step ends when it does."""
    for row in draft.rows:
        if row.lane == lane and row.begin_us < time_us < row.end_us:
            return row.end_us
    return time_us


def assign_steps(draft: Draft) -> None:
    """Work on a thread belongs to the step in which it began, work of a device to that of its launch."""
    begins = [begin_us for _, begin_us, _ in draft.steps]

    def step_at(time_us: float) -> int:
        step = bisect_right(begins, time_us) - 1
        return step if step >= 0 and time_us <= draft.steps[step][2] else NOTHING

    for row in draft.rows:
        if not row.kind.on_device and row.kind is not TaskKind.MARKER:
            row.step = step_at(row.begin_us)
    for row in draft.rows:
        if row.kind.on_device:
            launch = row.launched_by
            row.step = step_at(row.begin_us) if launch == NOTHING else draft.rows[launch].step
