"""Bytes that are allocated at every moment, counted as objects come and go."""

from __future__ import annotations

import weakref
from typing import Any

from daceml.simulation.graph import NOTHING
from daceml.simulation.memory.allocations import Allocations

BLOCK_BYTES = 512
"""What torch's allocator for CUDA rounds up to: c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize."""


class LiveBytes:
    """Counts blocks of memory; each ends with the object that stands for it.

    Attributes:
        operation: number of the one that is running or runs next; whoever counts operations keeps it.
    """

    def __init__(self, *, block_bytes: int = BLOCK_BYTES) -> None:
        """Args: block_bytes: what sizes are rounded up to."""
        self._block_bytes = block_bytes
        self.operation = 0
        self.now = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}
        # of each block that is or was held: its bytes, and the operations that took it and gave it back
        self._lives: list[tuple[int, int, int]] = []
        self._row: dict[int, int] = {}

    def add(self, block: Any, size_bytes: int) -> None:
        """Count a block, unless it is counted already.

        Args:
            block: one object for one block, however many tensors lie in it.
        """
        number = id(block)
        if number in self._known:
            return
        held = -(-size_bytes // self._block_bytes) * self._block_bytes

        def freed(_: weakref.ref[Any]) -> None:
            del self._known[number]
            self.now -= held
            self._end(self._row.pop(number))

        self._known[number] = weakref.ref(block, freed)
        self._row[number] = len(self._lives)
        self._lives.append((held, self.operation, NOTHING))
        self.now += held
        self.peak = max(self.peak, self.now)

    def add_for_a_moment(self, size_bytes: int) -> None:
        """Count what an operation takes and gives back before it ends."""
        if size_bytes > 0:
            held = -(-size_bytes // self._block_bytes) * self._block_bytes
            self.peak = max(self.peak, self.now + held)
            self._lives.append((held, self.operation, self.operation))

    def begin(self) -> None:
        """Forget what was: what is alive now was there before the first operation."""
        self.peak, self.operation = self.now, 0
        alive = sorted(self._row.items(), key=lambda pair: pair[1])
        self._lives = [(self._lives[row][0], NOTHING, NOTHING) for _, row in alive]
        self._row = {number: row for row, (number, _) in enumerate(alive)}

    def allocations(self) -> Allocations:
        """Every block since `begin`, by the operation that took it and the last one before it was freed."""
        return Allocations.of(self._lives)

    def _end(self, row: int) -> None:
        held, taken_by, _ = self._lives[row]
        # freed between two operations: the first one is the last that ran
        self._lives[row] = (held, taken_by, max(self.operation - 1, taken_by, 0))
