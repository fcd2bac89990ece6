"""CUDA graphs: what of a launched graph's work the profiler did not record is a task that fills its place.

Profilers of 2023 record only a part of a graph's kernels. The stream looks idle in between, and the time
would count as a delay that nothing explains.
"""

from __future__ import annotations

from bisect import bisect_left

from daceml.simulation.building import runtime_calls
from daceml.simulation.building.draft import Draft, Row
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import TaskKind

_IDLE_US = 20.0  # between two kernels of one graph: what is longer, was work
_SOON_US = 15.0  # after the end of work of another stream: then it was a wait


def add_unrecorded_work(draft: Draft) -> None:
    """Before the lanes are in order: a task for each time in which a stream seems idle inside a graph."""
    by_lane: dict[int, list[int]] = {}
    for number in draft.device_rows():
        by_lane.setdefault(draft.rows[number].lane, []).append(number)
    ends = sorted((draft.rows[number].end_us, draft.rows[number].lane) for number in draft.device_rows())
    found, whole_us = 0, 0.0
    for lane, members in by_lane.items():
        members.sort(key=lambda number: draft.rows[number].begin_us)
        before = NOTHING
        for number in members:
            graph = _graph_between(draft, before, number)
            if graph != NOTHING:
                begin_us = max(
                    draft.rows[before].end_us if before != NOTHING else 0.0, draft.rows[graph].end_us
                )
                end_us = draft.rows[number].begin_us
                if end_us - begin_us > _IDLE_US and not _ended_elsewhere(ends, lane, end_us):
                    _fill(draft, lane, graph, begin_us, end_us)
                    found, whole_us = found + 1, whole_us + end_us - begin_us
            before = number
    if found:
        draft.notes.append(
            f"{whole_us / 1e3:.1f} ms of work inside CUDA graphs were not recorded:"
            f" {found} tasks stand for it"
        )


def _graph_between(draft: Draft, before: int, number: int) -> int:
    """The graph launch whose work may fill the time between two tasks of a stream."""
    for candidate in (number, before):
        if candidate == NOTHING:
            continue
        launch = draft.rows[candidate].launched_by
        if launch != NOTHING and runtime_calls.GRAPH_LAUNCH.match(draft.rows[launch].name):
            return launch
    return NOTHING


def _ended_elsewhere(ends: list[tuple[float, int]], lane: int, time_us: float) -> bool:
    place = bisect_left(ends, (time_us - _SOON_US, -1))
    while place < len(ends) and ends[place][0] <= time_us:
        if ends[place][1] != lane:
            return True
        place += 1
    return False


def _fill(draft: Draft, lane: int, graph: int, begin_us: float, end_us: float) -> None:
    row = draft.add(
        Row(
            name=f"work of {draft.rows[graph].name} that was not recorded", kind=TaskKind.KERNEL, lane=lane,
            begin_us=begin_us, start_us=begin_us, end_us=end_us, launched_by=graph,
        )
    )  # fmt: skip
    work = draft.launches.setdefault(graph, [])
    work.append(row)
    work.sort(key=lambda number: draft.rows[number].begin_us)
