"""All models that a database has enough measurements for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

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
        odd: further rows, of sizes of which no work follows; the model is of the others.
        fitted: None where there is no model; `why` says so.
    """

    kind: str
    device: str
    rows: int
    references: bool = False
    odd: int = 0
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
        budget_s: for all of them, shared by their numbers of measurements. What is not begun when it has
            passed is not learned. 0 is no limit, and the first architecture of each.
        observe: is told of each as it is done.
    Returns:
        what was learned, and why not of the others: too few measurements, an operation of which nobody knows
        what it computes, a device without a figure that is needed, a budget that has passed.
    """
    until = monotonic() + budget_s
    wanted: list[tuple[Observations, str, bool, int]] = []
    for table in observations(entries, device_of):
        sound = table.sound()
        for name, seconds in sound.seconds.items():
            if only in (None, name):
                known = sound.at(np.isfinite(seconds))
                odd = int(np.isfinite(table.seconds[name]).sum()) - len(known.operations)
                wanted.append((known.alone(name), name, False, odd))
                if len(known.operations) >= FEWEST and _references(known, name):
                    wanted.append((known, name, True, odd))
    rows = sum(len(table.operations) for table, *_ in wanted if len(table.operations) >= FEWEST)
    lessons: list[Lesson] = []
    for table, name, references, odd in wanted:
        count = len(table.operations)
        why, fitted = "", None
        if count < FEWEST:
            why = f"{count} measurements; a model needs {FEWEST}"
        elif budget_s and monotonic() > until:
            why = f"the budget of {budget_s:g} s had passed"
        else:
            share = max(until - monotonic(), 0.0) * count / rows
            try:
                fitted = fit_one(table, name, budget_s=share if budget_s else 0.0)
            except (DeviceError, EstimationError) as error:
                why = str(error).splitlines()[0].partition("] ")[2]
            rows -= count
        lessons.append(
            Lesson(
                kind=table.kind,
                device=name,
                rows=count,
                references=references,
                odd=odd,
                fitted=fitted,
                why=why,
            )
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
