"""Durations from whatever knows most of an operation: a measurement, a model, another device, a roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, log
from statistics import fmean

from daceml.devices.catalogue import catalogue
from daceml.devices.roofline import Work, expected, lower_bound
from daceml.devices.specification import ARITHMETICS, Device, plain
from daceml.errors import DeviceError, EntryError
from daceml.operations.database.records import Duration, Entry, Operation
from daceml.operations.database.store import OpDatabase
from daceml.operations.estimate import DurationSource, Estimate
from daceml.operations.work.operator_aliases import spellings
from daceml.operations.work.operator_class import OperatorClass, operator_class
from daceml.operations.work.operator_work import work_of

ALONE = 0.05
"""What is measured by itself takes otherwise within a step: sums of operators are held to 5 % of three
networks (docs/measuring.md)."""
SCALED = 2.3
"""Nine in ten of NeuSight's rows of 50 us and more, each from each other GPU of the set by the ratio of
rooflines, are within this factor of what was measured; the median error is none."""

# By what factor an operation may be slower than its roofline says: about the 95 % quantiles of NeuSight's
# rows (float32, eight GPUs) whose roofline is 100 us and more. Classes that the set does not have are taken
# to be no better than its worst, those that go through memory once as bad as its normalisations.
SLOWER: dict[OperatorClass, float] = {
    "product": 4.0,
    "convolution": 5.0,
    "attention": 5.0,
    "normalization": 2.2,
    "softmax": 2.0,
    "elementwise": 1.2,
    "optimizer": 2.2,
    "copy": 2.2,
    "reduction": 2.2,
    "pooling": 2.2,
}
UNKNOWN_CLASS = 5.0
# A launch that is mostly floor: what was measured between devices of one floor differs by as much.
FLOOR_SLOWER = 2.0

_MODES = ("graph", "eager", "cold")  # on a device, the first is its time alone
_NORMAL_90, _NORMAL_80, _MAD = 1.6449, 1.2816, 1.4826


class DurationLadder:
    """A `DurationSource` that asks others, the surest first; each rung answers what it knows.

    Rows of the operation on the device itself; `learned` sources, in their order; rows of the operation on
    other devices, scaled by the ratio of rooflines; the roofline alone.

    Args:
        database: of durations; None has none.
        learned: models of operations; the first that knows one is taken.
        scale: whether rows of other devices are looked for.
    """

    def __init__(
        self,
        database: OpDatabase | None = None,
        *,
        learned: Sequence[DurationSource] = (),
        scale: bool = True,
    ) -> None:
        self.database, self.learned, self.scale = database, tuple(learned), scale

    def estimate(self, operation: Operation, device: Device, *, work: Work | None = None) -> Estimate | None:
        """The duration of one call; None where no rung knows anything: nobody has said what it does.

        Args:
            work: of the operation, where its name alone does not tell.
        Raises:
            DeviceError: the device's rates are not known.
        """
        forms = spellings(operation)
        rows = self._rows(forms)
        own = [row for row in rows if same_device(row.environment.device, device)]
        if own:
            return _measured(_best(own))
        for source in self.learned:
            for form in forms:
                if (known := source.estimate(form, device)) is not None:
                    return known
        work = work_of(operation) if work is None else work
        if work is None:
            return None
        if rows and self.scale and (scaled := _scaled(rows, work, device)) is not None:
            return scaled
        return roofline_estimate(work, device, operator_class(operation.operator))

    def _rows(self, forms: Sequence[Operation]) -> list[Entry]:
        if self.database is None:
            return []
        for form in forms:
            try:
                found = [row for row in self.database.find(form) if row.provenance != "predicted"]
            except EntryError:  # such as a tensor of no elements: no database has it
                continue
            if found:
                return found
        return []


def roofline_estimate(work: Work, device: Device, kind: OperatorClass) -> Estimate:
    """What a roofline alone says: likely what large products and copies reach, and no less than the peaks.

    Raises:
        DeviceError: a rate of the device is not known.
    """
    if work.flops <= 0 and work.bytes_moved <= 0:
        return Estimate(duration_us=0.0, low_us=0.0, high_us=0.0, basis="roofline")
    likely = expected(work, device)
    bound = lower_bound(work, device)
    above = likely.duration_us - likely.floor_us
    high_us = FLOOR_SLOWER * likely.floor_us + SLOWER.get(kind, UNKNOWN_CLASS) * above
    return Estimate(
        duration_us=likely.duration_us,
        low_us=min(bound.duration_us, likely.duration_us),
        high_us=high_us,
        basis="roofline",
        notes=likely.notes,
    )


def same_device(name: str, device: Device) -> bool:
    """Whether a row's device is this one, by its name or an alias."""
    return device.is_called(name)


def _best(rows: Sequence[Entry]) -> Entry:
    """The device's time before a call's; `find` has measured rows first, and the latest first of these."""
    return min(rows, key=lambda row: _MODES.index(row.duration.mode))


def _measured(row: Entry) -> Estimate:
    low_us, high_us = _limits(row.duration)
    return Estimate(
        duration_us=row.duration.median_s * 1e6,
        low_us=low_us,
        high_us=high_us,
        basis="measured",
        notes=(f"durations measured by {row.source}",),
    )


def _limits(duration: Duration) -> tuple[float, float]:
    """Of nine in ten: by deciles, else by the median deviation; no closer than measuring alone can be."""
    median = duration.median_s
    below = above = ALONE * median
    if duration.p10_s is not None and duration.p90_s is not None:
        below = max(below, (median - duration.p10_s) * _NORMAL_90 / _NORMAL_80)
        above = max(above, (duration.p90_s - median) * _NORMAL_90 / _NORMAL_80)
    elif duration.mad_s is not None:
        spread = _NORMAL_90 * _MAD * duration.mad_s
        below, above = max(below, spread), max(above, spread)
    return max(median - below, 0.0) * 1e6, (median + above) * 1e6


def _scaled(rows: Sequence[Entry], work: Work, device: Device) -> Estimate | None:
    """From other devices, each by the ratio of rooflines; the geometric mean where there are several."""
    by_device: dict[str, list[Entry]] = {}
    for row in rows:
        by_device.setdefault(plain(row.environment.device), []).append(row)
    there = expected(work, device).duration_us
    logarithms: list[float] = []
    names: list[str] = []
    for some in by_device.values():
        origin = _known_device(some[0].environment.device)
        if origin is None:
            continue
        try:
            here = expected(work, origin).duration_us
        except DeviceError:
            continue
        seconds = _best(some).duration.median_s
        if here > 0 and seconds > 0:
            logarithms.append(log(seconds * 1e6 * there / here))
            names.append(origin.name)
    if not logarithms:
        return None
    likely = exp(fmean(logarithms))
    least = lower_bound(work, device).duration_us
    return Estimate(
        duration_us=max(likely, least),
        low_us=max(likely / SCALED, least),
        high_us=max(likely * SCALED, least),
        basis="scaled",
        notes=(f"scaled from {', '.join(sorted(names))} by the ratio of rooflines",),
    )


@lru_cache(maxsize=256)
def _known_device(name: str) -> Device | None:
    # not `find_device`, which would read a file whose path a row has for a name
    return next((device for device in catalogue() if device.is_called(name)), None)


def with_arithmetic(work: Work, arithmetic: str) -> Work:
    """The same work in another arithmetic, such as products of float32 in tf32.

    Raises:
        ValueError: it is none of `ARITHMETICS`.
    """
    if arithmetic not in ARITHMETICS:
        raise ValueError(f"{arithmetic!r} is none of {', '.join(ARITHMETICS)}")
    return replace(work, arithmetic=arithmetic)
