"""When each rank began and ended each communication, by its own clock: all that aligning clocks needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Timings:
    """Of m communications among n ranks, in microseconds.

    Attributes:
        start_us, end_us: [m, n] NaN for who is no member.
        joint: [m] whether no member can end before the last one has begun.
        sender: [m] of a pair the column of who sends, else -1.
        family: [m] equal numbers take about equally long (kind, size and group are the same).
    """

    start_us: Floats
    end_us: Floats
    joint: NDArray[np.bool_]
    sender: NDArray[np.int64]
    family: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.joint)

    @property
    def members(self) -> NDArray[np.bool_]:
        """[m, n] who takes part."""
        return np.isfinite(self.start_us)

    def taken(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Timings:
        """These communications, in this order."""
        return Timings(
            start_us=self.start_us[index],
            end_us=self.end_us[index],
            joint=self.joint[index],
            sender=self.sender[index],
            family=self.family[index],
        )
