"""Bytes that are allocated at every moment, counted as objects come and go."""

from __future__ import annotations

import weakref
from typing import Any

BLOCK_BYTES = 512
"""What torch's allocator for CUDA rounds up to: c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize."""


class LiveBytes:
    """Counts blocks of memory; each ends with the object that stands for it."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def add(self, block: Any, size_bytes: int) -> None:
        """Count a block, unless it is counted already.

        Args:
            block: one object for one block, however many tensors lie in it.
        """
        number = id(block)
        if number in self._known:
            return
        held = -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES

        def freed(_: weakref.ref[Any]) -> None:
            del self._known[number]
            self.now -= held

        self._known[number] = weakref.ref(block, freed)
        self.now += held
        self.peak = max(self.peak, self.now)
