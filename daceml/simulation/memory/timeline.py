"""Memory over time: allocated and reserved bytes, when they are most, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.graph import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class OverBudget:
    """A time during which more is reserved than a budget has.

    Attributes:
        end_us: infinity where it is so to the end.
        excess_bytes: the most beyond the budget in this time.
    """

    start_us: float
    end_us: float
    excess_bytes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryTimeline:
    """What is held after each of n events, by time.

    Attributes:
        time_us: [n] never falling.
        block: [n] number of the block that an event takes or gives back; a number may serve again.
        size_bytes: [n] above zero where it is taken, below where it is given back.
        allocated_bytes: [n] of blocks; reserved_bytes: [n] of segments. Equal where nothing is cached.
        held_bytes, held_reserved_bytes: before the first event.
    """

    time_us: Floats
    block: Ints
    size_bytes: Ints
    allocated_bytes: Ints
    reserved_bytes: Ints
    held_bytes: int = 0
    held_reserved_bytes: int = 0

    def __len__(self) -> int:
        return len(self.time_us)

    @property
    def peak_bytes(self) -> int:
        """The most that is allocated at any moment."""
        return int(self.allocated_bytes.max(initial=self.held_bytes))

    @property
    def peak_us(self) -> float:
        """When it is reached first; 0 where it is what was held before all events."""
        if not len(self) or self.peak_bytes == self.held_bytes:
            return 0.0
        return float(self.time_us[np.argmax(self.allocated_bytes)])

    @property
    def peak_reserved_bytes(self) -> int:
        """The most that is reserved at any moment: what has to fit on the device."""
        return int(self.reserved_bytes.max(initial=self.held_reserved_bytes))

    @property
    def fragmentation(self) -> float:
        """Share of the reserved peak that is beyond the allocated one; 0 where nothing is reserved."""
        reserved = self.peak_reserved_bytes
        return 1.0 - self.peak_bytes / reserved if reserved else 0.0

    def at(self, time_us: float) -> tuple[int, int]:
        """Allocated and reserved bytes behind the events up to this moment."""
        place = int(np.searchsorted(self.time_us, time_us, side="right")) - 1
        if place < 0:
            return self.held_bytes, self.held_reserved_bytes
        return int(self.allocated_bytes[place]), int(self.reserved_bytes[place])

    def live_at(self, time_us: float) -> dict[int, int]:
        """Bytes of each block that was taken and not yet given back, the largest first.

        Where events of one moment go up and down again, those that are live at its highest point.
        What was held before the first event has no number and is left out.
        """
        last = int(np.searchsorted(self.time_us, time_us, side="right"))
        first = int(np.searchsorted(self.time_us, time_us, side="left"))
        if last > first:
            last = first + int(np.argmax(self.allocated_bytes[first:last])) + 1
        live: dict[int, int] = {}
        for block, size in zip(self.block[:last].tolist(), self.size_bytes[:last].tolist(), strict=True):
            if size > 0:
                live[block] = size
            else:
                live.pop(block, None)
        return dict(sorted(live.items(), key=lambda row: -row[1]))

    def over(self, budget_bytes: int) -> tuple[OverBudget, ...]:
        """When more is reserved than this, in order of time."""
        level = np.concatenate(([self.held_reserved_bytes], self.reserved_bytes))
        time_us = np.concatenate(([self._before_us], self.time_us))
        above: NDArray[np.bool_] = np.concatenate(([False], level > budget_bytes, [False]))
        starts = np.flatnonzero(~above[:-1] & above[1:])
        ends = np.flatnonzero(above[:-1] & ~above[1:])
        return tuple(
            OverBudget(
                start_us=float(time_us[start]),
                end_us=float(time_us[end]) if end < len(level) else float("inf"),
                excess_bytes=int(level[start:end].max()) - budget_bytes,
            )
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        )

    @property
    def _before_us(self) -> float:
        return min(0.0, float(self.time_us[0])) if len(self) else 0.0
