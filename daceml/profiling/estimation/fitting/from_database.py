"""All models that a database has enough measurements for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from daceml.profiling.database.records import Entry
from daceml.profiling.estimation.fitting.fit import FEWEST, Fitted, fit
from daceml.profiling.estimation.observations import DeviceOf, Observations, observations

# A device whose durations are known of fewer operations says too little of them
_KNOWN_ELSEWHERE = 0.5


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One kind of operation on one device.

    Attributes:
        fitted: None where there were too few measurements; `why` says so.
    """

    kind: str
    device: str
    rows: int
    fitted: Fitted | None = None
    why: str = ""


def fit_all(
    entries: Iterable[Entry],
    device_of: DeviceOf,
    *,
    only: str | None = None,
    budget_s: float = 600.0,
    observe: Callable[[Lesson], None] | None = None,
) -> list[Lesson]:
    """Fit a model to each kind of operation on each device.

    Args:
        device_of: figures of devices by their names in entries.
        only: name of the one device for which models are wanted; all are references.
        budget_s: for all of them, shared by their numbers of measurements.
        observe: is told of each as it is done.
    Raises:
        EstimationError: nobody knows what some operation computes and moves.
    """
    wanted = [
        (table, name, np.isfinite(seconds))
        for table in observations(entries, device_of)
        for name, seconds in table.seconds.items()
        if only in (None, name)
    ]
    rows = sum(int(known.sum()) for _, _, known in wanted if known.sum() >= FEWEST)
    lessons: list[Lesson] = []
    for table, name, known in wanted:
        count = int(known.sum())
        if count < FEWEST:
            lesson = Lesson(
                kind=table.kind, device=name, rows=count, why=f"{count} measurements; a model needs {FEWEST}"
            )
        else:
            fitted = fit_one(table.at(known), name, budget_s=budget_s * count / rows)
            lesson = Lesson(kind=table.kind, device=name, rows=count, fitted=fitted)
        lessons.append(lesson)
        if observe is not None:
            observe(lesson)
    return lessons


def fit_one(table: Observations, device: str, *, budget_s: float) -> Fitted:
    """A model of the operations of a table on one of its devices; the others are references."""
    floor_s = table.floor_s()
    others = table.without(device).over_analysis(floor_s)
    known = {
        name: column for name, column in others.items() if np.isfinite(column).mean() >= _KNOWN_ELSEWHERE
    }
    return fit(
        table.operations,
        table.seconds[device],
        table.devices[device],
        floor_s=floor_s,
        references=known,
        timing=table.timing,
        budget_s=budget_s,
    )
