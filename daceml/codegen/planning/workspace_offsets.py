"""Where in the workspace each intermediate lives: offsets that never let two live arrays overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
from dace.symbolic import int_ceil

if TYPE_CHECKING:
    from daceml.sdfg.sizes import Size

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An array's life: written first at step `first`, read last at step `last` (both included)."""

    name: str
    size_bytes: Size
    first: int
    last: int

    def meets(self, other: Interval) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Offsets in bytes from the start of the workspace, and its size; symbolic where sizes are."""

    offsets: dict[str, Size]
    size_bytes: Size


def plan_offsets(intervals: Sequence[Interval]) -> Layout:
    """Pack arrays into one workspace.

    With static sizes: largest first, each at the lowest offset that is free during its life. With symbolic
    sizes an offset must hold for every size, so arrays that are never alive together share a slot as large as
    the largest.

    Source: the greedy-by-size order is that of Pisarchyk and Lee, Efficient Memory Management for Deep Neural
    Net Inference (2020), section 5.2.
    """
    if all(isinstance(i.size_bytes, int) for i in intervals):
        return _pack_static(intervals)
    return _pack_slots(intervals)


def _pack_static(intervals: Sequence[Interval]) -> Layout:
    placed: list[tuple[Interval, int]] = []
    for interval in sorted(intervals, key=lambda i: (-_static(i), i.first, i.name)):
        size = _aligned_static(interval)
        offset = 0
        for other, start in sorted(placed, key=lambda p: p[1]):
            if other.meets(interval):
                if offset + size <= start:
                    break
                offset = max(offset, start + _aligned_static(other))
        placed.append((interval, offset))
    end = max((start + _aligned_static(i) for i, start in placed), default=0)
    return Layout(offsets={i.name: start for i, start in placed}, size_bytes=end)


def _pack_slots(intervals: Sequence[Interval]) -> Layout:
    slots: list[list[Interval]] = []
    for interval in sorted(intervals, key=lambda i: (i.first, i.name)):
        free = next((s for s in slots if not any(o.meets(interval) for o in s)), None)
        if free is None:
            slots.append([interval])
        else:
            free.append(interval)
    offsets: dict[str, Size] = {}
    end: Size = 0
    for slot in slots:
        offsets |= {i.name: end for i in slot}
        widest = sympy.Max(*{_aligned(i) for i in slot})
        end = end + (int(widest) if widest.is_Integer else widest)
    return Layout(offsets=offsets, size_bytes=end)


def _static(interval: Interval) -> int:
    assert isinstance(interval.size_bytes, int)
    return interval.size_bytes


def _aligned_static(interval: Interval) -> int:
    return -(-_static(interval) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _aligned(interval: Interval) -> Size:
    if isinstance(interval.size_bytes, int):
        return _aligned_static(interval)
    units: Any = int_ceil(interval.size_bytes, ALIGNMENT_BYTES)
    return units * ALIGNMENT_BYTES
