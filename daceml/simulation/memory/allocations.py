"""Which task takes a block of memory, and which one is the last to need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import AllocationError
from daceml.simulation.graph import NOTHING, Ints

_TASKS = "a task of the graph, or -1"


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocations:
    """Columns of n blocks.

    Attributes:
        size_bytes: [n] as tensors have them; allocators round.
        taken_by: [n] the task at whose start a block is taken; NOTHING: it is there from the beginning.
        given_back_by: [n] the task at whose end it is given back; NOTHING: it stays.
    Raises:
        AllocationError: columns of different lengths, or a size below zero.
    """

    size_bytes: Ints
    taken_by: Ints
    given_back_by: Ints

    def __post_init__(self) -> None:
        if not len(self.size_bytes) == len(self.taken_by) == len(self.given_back_by):
            raise AllocationError(
                f"{len(self.size_bytes)} sizes, {len(self.taken_by)} tasks that take and"
                f" {len(self.given_back_by)} that give back",
                fix="give one of each for every block",
            )
        if (self.size_bytes < 0).any():
            wrong = int(np.flatnonzero(self.size_bytes < 0)[0])
            raise AllocationError(
                f"block {wrong} has {self.size_bytes[wrong]} bytes", fix="give 0 bytes or more"
            )

    def __len__(self) -> int:
        return len(self.size_bytes)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]]) -> Allocations:
        """From (size_bytes, taken_by, given_back_by) of each block."""
        table = np.array(list(rows), np.int64).reshape(-1, 3)
        return cls(size_bytes=table[:, 0], taken_by=table[:, 1], given_back_by=table[:, 2])

    @classmethod
    def joined(cls, parts: Sequence[Allocations]) -> Allocations:
        """One after the other."""
        names = ("size_bytes", "taken_by", "given_back_by")
        nothing = cls.of(())
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in (nothing, *parts)]) for name in names}
        )

    def taken(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Allocations:
        """These rows, in this order."""
        return Allocations(
            size_bytes=self.size_bytes[index],
            taken_by=self.taken_by[index],
            given_back_by=self.given_back_by[index],
        )

    def with_tasks(self, starts: Ints, ends: Ints) -> Allocations:
        """The same blocks of other tasks.

        Args:
            starts: [tasks] for each task of these, the one at whose start it takes its blocks.
            ends: likewise, the one at whose end it gives them back.
        """
        self.check(len(starts))
        return Allocations(
            size_bytes=self.size_bytes,
            taken_by=np.append(starts, NOTHING)[self.taken_by],
            given_back_by=np.append(ends, NOTHING)[self.given_back_by],
        )

    def check(self, tasks: int) -> None:
        """Refuse tasks that there are not.

        Raises:
            AllocationError: one of them is not among so many.
        """
        for column in (self.taken_by, self.given_back_by):
            wrong = (column < NOTHING) | (column >= tasks)
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise AllocationError(
                    f"block {row} belongs to task {column[row]} of {tasks}", fix=f"name {_TASKS}"
                )
