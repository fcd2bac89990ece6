"""Columns in the file's order and its clock -> events by start, from the first one on."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.profiling.kineto.categories import STEP
from daceml.profiling.kineto.columns import LONGEST_US, Columns
from daceml.profiling.kineto.numerals import since
from daceml.profiling.trace import UNKNOWN, EventKind, Events, Floats, Ints

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

TWICE = "that stand there twice"  # why an event is left out
_ONCE = (EventKind.CALL, EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The first event, on the clock of the file: whole microseconds, and a rest that is kept apart.

    Together they would need more digits than a float64 has.
    """

    whole: int
    rest_us: float

    def times(self, values: Sequence[float]) -> Floats:
        """[n] microseconds from the first event."""
        return np.array([since(value, self.whole) for value in values], np.float64) - self.rest_us

    @property
    def time_us(self) -> float:
        """Of the first event, on the clock of the file."""
        return self.whole + self.rest_us


def events_by_start(columns: Columns) -> tuple[Events, Origin] | None:
    """The events, and when the first one was; None if there are none."""
    near = _near(columns)
    if not len(near):
        return None
    whole_us, rest_us = np.asarray(columns.start)[near], np.asarray(columns.start_rest)[near]
    first = int(whole_us.min())
    since_us = (whole_us - first) + rest_us
    origin = Origin(whole=first, rest_us=float(since_us.min()))
    start_us = since_us - origin.rest_us
    duration_us = np.asarray(columns.duration)[near]
    order = np.lexsort((-duration_us, start_us))
    index = near[order]
    again = _recorded_again(columns, index, start_us[order])
    if again.any():
        columns.left_out[TWICE] += int(again.sum())
        order, index = order[~again], index[~again]

    def column(values: array[int]) -> Ints:
        return np.asarray(values)[index]

    events = Events(
        kind=column(columns.kind),
        name=column(columns.name),
        lane=column(columns.lane),
        start_us=start_us[order],
        duration_us=duration_us[order],
        correlation=column(columns.correlation),
        external_id=column(columns.external_id),
        sequence=column(columns.sequence),
        details=tuple(columns.details[i] for i in index.tolist()),
    )
    return events, origin


def _recorded_again(columns: Columns, index: Indices, start_us: Floats) -> Mask:
    """Calls, device work and step marks that are there already: a lane does nothing twice at one moment."""
    steps = [number for name, number in columns.names.items() if name.startswith(STEP)]
    kind, correlation = np.asarray(columns.kind)[index], np.asarray(columns.correlation)[index]
    name, lane = np.asarray(columns.name)[index], np.asarray(columns.lane)[index]
    duration_us = np.asarray(columns.duration)[index]
    launched = (correlation != UNKNOWN) & np.isin(kind, _ONCE)
    marks_step = (kind == EventKind.ANNOTATION) & np.isin(name, steps)
    # What was rounded to nothing may fit into one moment several times.
    rows = np.flatnonzero((launched | marks_step) & (duration_us > 0))
    columns_of_rows = [column[rows] for column in (start_us, duration_us, lane, name, correlation)]
    order = np.lexsort(columns_of_rows)  # stable: the first of equal rows stays first
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for column in columns_of_rows:
        same &= column[order][1:] == column[order][:-1]
    again = np.zeros(len(index), np.bool_)
    again[rows[order[1:][same]]] = True
    return again


def _near(columns: Columns) -> Indices:
    """Events within a day of the middle one; the others come from clocks that were never set."""
    start = np.asarray(columns.start).astype(np.float64) + np.asarray(columns.start_rest)
    if not len(start):
        return np.zeros(0, np.intp)
    near = np.abs(start - np.median(start)) <= LONGEST_US
    if not near.all():
        columns.left_out["that start more than a day before or after the others"] += int((~near).sum())
    return np.flatnonzero(near)
