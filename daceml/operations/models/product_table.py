"""Products of matrices between those that somebody measured on a grid of sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log

from daceml.errors import EstimationError
from daceml.operations.database.records import Entry, Operation
from daceml.operations.models.products import products

Sizes = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductTable:
    """[m, k] times [k, n] of one element type on one device.

    Attributes:
        dtype: of the elements.
        seconds: by (m, n, k).
        m, n, k: sizes that were measured, ascending.
    """

    dtype: str
    seconds: Mapping[Sizes, float]
    m: Sequence[float]
    n: Sequence[float]
    k: Sequence[float]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> ProductTable:
        """From rows of single products; of sizes that were measured several times, the fastest.

        Raises:
            EstimationError: there is none, or they are of several types or devices.
        """
        kinds: set[tuple[str, str]] = set()
        seconds: dict[Sizes, float] = {}
        for entry in entries:
            sizes = _sizes(entry.operation)
            if sizes is not None:
                kinds.add((entry.operation.operands[0].dtype, entry.environment.device))
                seconds[sizes] = min(entry.duration.median_s, seconds.get(sizes, float("inf")))
        if not seconds:
            raise EstimationError(
                "no product of two matrices was measured",
                fix="give rows of aten::mm, aten::addmm or aten::linear",
            )
        if len(kinds) > 1:
            raise EstimationError(
                "products of several types or devices are no table",
                why="; ".join(f"{dtype} on {device}" for dtype, device in sorted(kinds)),
                fix="give rows of one type on one device",
            )
        ((dtype, _),) = kinds
        m, n, k = (sorted({sizes[axis] for sizes in seconds}) for axis in range(3))
        return cls(dtype=dtype, seconds=seconds, m=m, n=n, k=k)

    def duration_us(self, operation: Operation) -> float | None:
        """Straight lines between logarithms of sizes and times; None outside of the grid, of another type, or
        for no product.

        Between two sizes the time of a product grows as a power of the size: so it is right for both rates,
        of arithmetic and of memory, and for a floor.
        """
        sizes = _sizes(operation)
        if sizes is None or operation.operands[0].dtype != self.dtype:
            return None
        ends = [_around(axis, size) for axis, size in zip((self.m, self.n, self.k), sizes, strict=True)]
        if any(end is None for end in ends):
            return None
        total = 0.0
        for corner in product(*(end for end in ends if end is not None)):
            share = 1.0
            for _, part in corner:
                share *= part
            if share == 0:
                continue
            found = self.seconds.get((corner[0][0], corner[1][0], corner[2][0]))
            if found is None:
                return None
            total += share * log(found * 1e6)
        return exp(total)


def _sizes(operation: Operation) -> Sizes | None:
    read = products([operation])
    if read is None or read.batch[0] != 1:
        return None
    return float(read.m[0]), float(read.n[0]), float(read.k[0])


def _around(axis: Sequence[float], size: float) -> tuple[tuple[float, float], ...] | None:
    """The measured sizes below and above, each with its share; both are one where that was measured."""
    place = bisect_left(axis, size)
    if place == len(axis) or (place == 0 and axis[0] != size):
        return None
    if axis[place] == size:
        return ((size, 1.0),)
    low, high = axis[place - 1], axis[place]
    above = log(size / low) / log(high / low)
    return ((low, 1 - above), (high, above))
