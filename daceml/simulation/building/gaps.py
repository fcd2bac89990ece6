"""What passes before each task on its lane and is nobody's work: Daydream's gaps, and unexplained delays."""

from __future__ import annotations

import numpy as np

from daceml.simulation.building.draft import Draft
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import EdgeKind

# Between two kernels of a stream that both were ready; what lasts longer, something else held back.
_SPACING_US = 20.0
_JITTER_US = 20.0  # by which launches take longer now and then
_LATE_US = 1000.0  # by which the first work of a stream begins late where older work is in its way
_WORTH_A_NOTE = 0.01  # of the busy time of the device


def gaps_of(draft: Draft) -> list[float]:
    """Microseconds before each row; for the first row of a lane, from the beginning of the trace."""
    gaps = [0.0] * len(draft.rows)
    for lane in range(len(draft.lanes)):
        if draft.lanes[lane].kind == "cpu":
            _of_thread(draft, lane, gaps)
        else:
            _of_stream(draft, lane, gaps)
    return gaps


def _of_thread(draft: Draft, lane: int, gaps: list[float]) -> None:
    end_us = 0.0
    for number in draft.on_lane[lane]:
        row = draft.rows[number]
        gaps[number] = 0.0 if row.cut_gap else max(row.begin_us - end_us, 0.0)
        end_us = row.end_us


def _of_stream(draft: Draft, lane: int, gaps: list[float]) -> None:
    """The spacing of work that waited for nothing but its stream; that of other work is the usual one."""
    observed: dict[int, float] = {}
    for number in draft.on_lane[lane]:
        row, before = draft.rows[number], draft.before(number)
        if before == NOTHING:
            gaps[number] = row.start_us if row.launched_by == NOTHING or _held_back(draft, number) else 0.0
            continue
        spacing_us = row.start_us - draft.rows[before].end_us
        if row.launched_by == NOTHING:
            gaps[number] = spacing_us
        elif draft.ready_us(number) <= draft.rows[before].end_us and spacing_us <= _SPACING_US:
            observed[number] = spacing_us
    usual_us = float(np.median(list(observed.values()))) if observed else 0.0
    for number in draft.on_lane[lane]:
        before = draft.before(number)
        if before != NOTHING and draft.rows[number].launched_by != NOTHING:
            most_us = draft.rows[number].start_us - draft.rows[before].end_us
            gaps[number] = min(observed.get(number, usual_us), most_us)


def _held_back(draft: Draft, number: int) -> bool:
    """Whether the first work of a stream began so late that work from before the recording was in its way."""
    row = draft.rows[number]
    late_us = row.start_us - draft.ready_us(number)
    waits = any(target == number and kind is not EdgeKind.LAUNCH for _, target, _, _, kind in draft.edges)
    if late_us <= _LATE_US or waits:
        return False
    draft.notes.append(
        f"{draft.lanes[row.lane].name} began {late_us / 1e3:.1f} ms after its first launch: it is taken"
        " to have done work from before the recording"
    )
    return True


def note_unexplained(draft: Draft, gaps: list[float]) -> None:
    """Say by how much device work started later than all that is known to hold it back.

    A replay starts it when it could: a delay that is kept would hide what the model does not know.
    """
    latest_us: dict[int, float] = {}
    for source, target, lag_us, from_start, _ in draft.edges:
        row = draft.rows[source]
        time_us = (row.start_us if from_start else row.end_us) + lag_us
        latest_us[target] = max(latest_us.get(target, 0.0), time_us)
    unexplained_us = busy_us = 0.0
    for number in draft.device_rows():
        row, before = draft.rows[number], draft.before(number)
        stream_us = gaps[number] + (0.0 if before == NOTHING else draft.rows[before].end_us)
        delay_us = row.start_us - max(stream_us, latest_us.get(number, 0.0))
        unexplained_us += delay_us if delay_us > _JITTER_US else 0.0
        busy_us += row.end_us - row.start_us
    if unexplained_us > _WORTH_A_NOTE * busy_us:
        share = f"{unexplained_us / busy_us:.1%} of its busy time" if busy_us else "it was never busy"
        late = f"{unexplained_us / 1e3:.1f} ms by which work of the device started late"
        draft.notes.append(f"nothing explains {late} ({share})")
