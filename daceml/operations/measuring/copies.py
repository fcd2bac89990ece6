"""Rates of copies by size: caches first, then memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from daceml.devices.measured import CopyRate
from daceml.operations.measuring.batches import Timed, duration

SMALLEST = 32 << 10
# Of the memory that is free now, both arrays together take at most this part.
_SHARE = 8


def copy_rates(prepared: Callable[[int], Timed], *, largest: int, free_bytes: int) -> tuple[CopyRate, ...]:
    """Copy arrays of 32 KiB, four times as many, and so on.

    Args:
        prepared: the size of an array in bytes -> what times copies of it into another array.
        largest: at least so many bytes has the last array, where there is room for it.
        free_bytes: memory that is free now, of which an eighth is taken at most.
    """
    return tuple(_rate(prepared(size), size) for size in _sizes(largest, free_bytes))


def _sizes(largest: int, free_bytes: int) -> Iterator[int]:
    size = SMALLEST
    yield size
    while size < largest and 2 * 4 * size <= free_bytes // _SHARE:
        size *= 4
        yield size


def _rate(timed: Timed, size: int) -> CopyRate:
    one = duration(timed)
    return CopyRate(size_bytes=size, bytes_per_s=2 * size / one.seconds, spread=one.spread)
