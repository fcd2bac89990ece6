"""All models that a database has enough measurements for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from daceml.errors import DeviceError, EstimationError
from daceml.operations.database.records import Entry
from daceml.operations.models.fitting.fit import FEWEST, Fitted, fit
from daceml.operations.models.observations import DeviceOf, Observations, observations

# A device whose durations are known of fewer operations says too little of them
_KNOWN_ELSEWHERE = 0.5


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One kind of operation on one device.

    Attributes:
        references: whether the model asks for what other devices took; one that does not is fitted, too.
        fitted: None where there is no model; `why` says so.
    """

    kind: str
    device: str
    rows: int
    references: bool = False
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
    Returns:
        what was learned, and why not of the others: too few measurements, an operation of which nobody knows
        what it computes, a device without a figure that is needed.
    """
    wanted: list[tuple[Observations, str, bool]] = []
    for table in observations(entries, device_of):
        for name, seconds in table.seconds.items():
            if only in (None, name):
                known = table.at(np.isfinite(seconds))
                wanted.append((known.alone(name), name, False))
                if len(known.operations) >= FEWEST and _references(known, name):
                    wanted.append((known, name, True))
    rows = sum(len(table.operations) for table, _, _ in wanted if len(table.operations) >= FEWEST)
    lessons: list[Lesson] = []
    for table, name, references in wanted:
        count = len(table.operations)
        why, fitted = "", None
        if count < FEWEST:
            why = f"{count} measurements; a model needs {FEWEST}"
        else:
            try:
                fitted = fit_one(table, name, budget_s=budget_s * count / rows)
            except (DeviceError, EstimationError) as error:
                why = str(error).splitlines()[0].partition("] ")[2]
        lessons.append(
            Lesson(kind=table.kind, device=name, rows=count, references=references, fitted=fitted, why=why)
        )
        if observe is not None:
            observe(lessons[-1])
    return lessons


def _references(table: Observations, device: str) -> list[str]:
    """Other devices that have measured enough of these operations."""
    others = table.without(device).seconds
    return [name for name, column in others.items() if np.isfinite(column).mean() >= _KNOWN_ELSEWHERE]


def fit_one(table: Observations, device: str, *, budget_s: float) -> Fitted:
    """A model of the operations of a table on one of its devices; the others are references."""
    floor_s = table.floor_s()
    others = table.without(device).over_analysis(floor_s)
    known = {name: others[name] for name in _references(table, device)}
    return fit(
        table.operations,
        table.seconds[device],
        table.devices[device],
        floor_s=floor_s,
        references=known,
        timing=table.timing,
        budget_s=budget_s,
    )
