"""Between which limits a prediction has to lie: those of the device, and those of what was measured.

A learned model may say anything outside of what it saw. An operation takes no less than its device's peaks
let it; no less than a measured one that is smaller in every size, and no more than one that is larger in
every size; and its ratio to analysis is at most some times that of the nearest measured one. Measurements do
not keep to the last two entirely, so each limit is as wide as nearly all of them need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EstimationError
from daceml.operations.models.principal_component import logarithms

Array = NDArray[np.float64]

# Measurements that may break a limit which is made of them
_EXCEPTIONS = 0.005
# Of the distances to the nearest other row: what is farther is not near any more
_NEAR = 0.99
# Operations that are compared with all rows at a time
_AT_ONCE = 64
# Limits are found from so many rows
_SAMPLE = 1000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What was measured of one mode on one device, and how closely measurements follow each other.

    Attributes:
        numbers: [rows, names] logarithms, as `Dimensions` has the names.
        of_size: [names] whether more of it makes an operation larger; of other numbers equal ones compare.
        logarithm_s: [rows] of the seconds measured; base: [rows] of those by analysis.
        slack: logarithm by which an operation may be faster than one that it contains.
        factor: logarithm by which the ratio of measured and analysed may differ from the nearest row's.
        reach: distance within which a row is near; beyond it, `factor` grows with the distance.
    """

    numbers: Array
    of_size: NDArray[np.bool_]
    logarithm_s: Array
    base: Array
    slack: float
    factor: float
    reach: float

    def __post_init__(self) -> None:
        rows = len(self.logarithm_s)
        fits = self.numbers.shape == (rows, len(self.of_size)) and self.base.shape == (rows,)
        if not (rows and fits and self.of_size.dtype == np.bool_ and np.isfinite(self.numbers).all()):
            raise EstimationError(
                "these are no limits of a model",
                why="there are no rows, or columns of different lengths",
                fix="fit the model again",
            )

    def distance(self, values: Array) -> tuple[Array, NDArray[np.int64]]:
        """[operations] how far the nearest row is, as the length of logarithms of ratios, and which it is."""
        numbers = logarithms(values)
        nearest, which = np.empty(len(numbers)), np.empty(len(numbers), np.int64)
        for part in _parts(len(numbers)):
            apart = _apart(numbers[part], self.numbers)
            which[part] = apart.argmin(axis=1)
            nearest[part] = apart[np.arange(len(apart)), which[part]]
        return nearest, which

    def clipped(self, logarithm_s: Array, values: Array, base: Array, least: Array) -> Array:
        """Predictions within all limits.

        Args:
            logarithm_s: [operations] predicted.
            values: [operations, names] as `Dimensions` has them.
            base: [operations] logarithm of the seconds by analysis.
            least: [operations] logarithm of the seconds that peaks need. It holds in any case.
        """
        numbers = logarithms(values)
        distance, which = self.distance(values)
        allowed = self.factor * np.maximum(distance / self.reach, 1.0)
        nearest = (self.logarithm_s - self.base)[which] + base
        found = np.clip(logarithm_s, nearest - allowed, nearest + allowed)
        for part in _parts(len(numbers)):
            smaller, larger = self.contained(numbers[part])
            floor = np.where(smaller, self.logarithm_s, -np.inf).max(axis=1) - self.slack
            ceiling = np.where(larger, self.logarithm_s, np.inf).min(axis=1) + self.slack
            found[part] = np.clip(found[part], np.minimum(floor, ceiling), ceiling)
        return np.maximum(found, least)

    def contained(self, numbers: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[operations, rows]: rows that are not larger in any size, and those that are not smaller in any."""
        rows, asked = self.numbers[None], numbers[:, None]
        same = (rows == asked)[:, :, ~self.of_size].all(axis=2)
        sizes, wanted = rows[:, :, self.of_size], asked[:, :, self.of_size]
        return same & (sizes <= wanted).all(axis=2), same & (sizes >= wanted).all(axis=2)


def limits(values: Array, of_size: NDArray[np.bool_], seconds: Array, base: Array) -> Limits:
    """Limits that nearly all of these rows keep to.

    Args:
        values: [rows, names]; of_size: [names], both as `Dimensions` has them.
        seconds: [rows] measured; base: [rows] logarithm of the seconds by analysis.
    """
    numbers, logs = logarithms(values), np.log(seconds)
    found = Limits(
        numbers=numbers, of_size=of_size, logarithm_s=logs, base=base, slack=0.0, factor=0.0, reach=1.0
    )
    chosen = np.random.default_rng(0).permutation(len(numbers))[:_SAMPLE]
    faster, differ, apart = [np.zeros(1)], [np.zeros(1)], [np.zeros(1)]
    for part in _parts(len(chosen)):
        rows = chosen[part]
        smaller, _ = found.contained(numbers[rows])
        # every row contains itself: nothing is below 0
        faster.append(np.where(smaller, logs, -np.inf).max(axis=1) - logs[rows])
        distance = _apart(numbers[rows], numbers)
        distance[np.arange(len(rows)), rows] = np.inf
        nearest = distance.argmin(axis=1)
        apart.append(distance[np.arange(len(rows)), nearest])
        differ.append(np.abs((logs - base)[nearest] - (logs - base)[rows]))
    near = np.concatenate(apart)
    return Limits(
        numbers=numbers,
        of_size=of_size,
        logarithm_s=logs,
        base=base,
        slack=float(np.quantile(np.concatenate(faster), 1 - _EXCEPTIONS)),
        factor=float(np.quantile(np.concatenate(differ), 1 - _EXCEPTIONS)),
        reach=max(float(np.quantile(near[np.isfinite(near)], _NEAR)), 1e-6),
    )


def _apart(numbers: Array, rows: Array) -> Array:
    return np.sqrt(((numbers[:, None] - rows) ** 2).sum(axis=2))


def _parts(count: int) -> Iterator[slice]:
    return (slice(i, i + _AT_ONCE) for i in range(0, count, _AT_ONCE))
