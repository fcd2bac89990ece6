"""Columns in the file's order and its clock -> events by start, from the first one on."""

from __future__ import annotations

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
_ONCE = frozenset({EventKind.CALL, EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET})


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
    whole = int(min(columns.start[index] for index in near))
    origin = Origin(whole=whole, rest_us=min(since(columns.start[index], whole) for index in near))
    start_us = origin.times([columns.start[index] for index in near])
    duration_us = np.array([columns.duration[index] for index in near], np.float64)
    order = np.lexsort((-duration_us, start_us))
    index = near[order]
    again = _recorded_again(columns, index, start_us[order])
    if again.any():
        columns.left_out[TWICE] += int(again.sum())
        order, index = order[~again], index[~again]

    def column(values: Sequence[int]) -> Ints:
        return np.array(values, np.int64)[index]

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
    steps = {number for name, number in columns.names.items() if name.startswith(STEP)}
    rows = zip(start_us.tolist(), index.tolist(), strict=True)
    seen: set[tuple[float | int, ...]] = set()
    again = np.zeros(len(index), np.bool_)
    for row, (start, event) in enumerate(rows):
        marks_step = columns.kind[event] == EventKind.ANNOTATION and columns.name[event] in steps
        launched = columns.correlation[event] != UNKNOWN and columns.kind[event] in _ONCE
        if not (marks_step or launched):
            continue
        if not columns.duration[event]:  # rounded to nothing: several fit into one moment
            continue
        key = (
            start,
            columns.duration[event],
            columns.lane[event],
            columns.name[event],
            columns.correlation[event],
        )
        again[row] = key in seen
        seen.add(key)
    return again


def _near(columns: Columns) -> Indices:
    """Events within a day of the middle one; the others come from clocks that were never set."""
    start = np.array(columns.start, np.float64)
    if not len(start):
        return np.zeros(0, np.intp)
    near = np.abs(start - np.median(start)) <= LONGEST_US
    if not near.all():
        columns.left_out["that start more than a day before or after the others"] += int((~near).sum())
    return np.flatnonzero(near)
