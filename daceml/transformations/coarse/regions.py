"""Regions of a network that change together, found by joining the regions of neighbours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self


@dataclass(eq=False)
class Region(ABC):
    """Operators that hand arrays over; what is known of a region is known of what it has become a part of."""

    def __post_init__(self) -> None:
        self._into: Self | None = None

    def whole(self) -> Self:
        """The region that all of it belongs to."""
        return self if self._into is None else self._into.whole()

    def join(self, other: Self) -> None:
        """Make one region of two."""
        mine, theirs = self.whole(), other.whole()
        if mine is not theirs:
            mine._into = theirs
            theirs.take(mine)

    @abstractmethod
    def take(self, other: Self) -> None:
        """Learn what is known of a region that has become a part of this one."""
