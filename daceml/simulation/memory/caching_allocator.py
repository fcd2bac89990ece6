"""PyTorch's caching allocator for CUDA and HIP devices: what it asks the device for, and where blocks lie.

Source: pytorch, c10/cuda/CUDACachingAllocator.cpp (c10/core/AllocatorConfig.h since 2.9): `round_size`,
`get_allocation_size`, `get_free_block`, `should_split`, `try_merge_blocks`, `release_cached_blocks`, with the
default settings. Not modelled: `expandable_segments`, `max_split_size_mb`, `roundup_power2_divisions`, blocks
that wait for another stream (`record_stream`), and private pools of CUDA graphs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from daceml.errors import AllocatorError, DeviceMemoryError

MIN_BLOCK_BYTES = 512  # kMinBlockSize: what every size is rounded up to
SMALL_BYTES = 1 << 20  # kSmallSize: the largest size of the small pool
SMALL_SEGMENT_BYTES = 2 << 20  # kSmallBuffer
LARGE_SEGMENT_BYTES = 20 << 20  # kLargeBuffer: for sizes below MIN_LARGE_BYTES
MIN_LARGE_BYTES = 10 << 20  # kMinLargeAlloc: from here on, a segment of its own
ROUND_LARGE_BYTES = 2 << 20  # kRoundLarge: what such a segment is rounded up to

_FIRST_ADDRESS = 1 << 32  # addresses that are made up: far apart, so that segments never touch
_APART = 1 << 40


def rounded_bytes(size_bytes: int) -> int:
    """What a tensor of this size takes of a segment."""
    return max(-(-size_bytes // MIN_BLOCK_BYTES), 1) * MIN_BLOCK_BYTES


def segment_bytes(block_bytes: int) -> int:
    """What the device is asked for where no cached block is large enough."""
    if block_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < MIN_LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-block_bytes // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES


@dataclass(kw_only=True, eq=False)
class _Block:
    """A part of a segment, between its neighbours there."""

    address: int
    size: int
    small: bool
    stream: int
    free: bool = True
    before: _Block | None = None
    behind: _Block | None = None


class CachingAllocator:
    """Takes and gives back blocks as torch does; a segment is kept for later requests.

    Attributes:
        allocated_bytes: of blocks that are taken; reserved_bytes: of segments.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        """Without any segment.

        Args:
            capacity_bytes: that segments may have together; None is without end.
        """
        self.capacity_bytes = capacity_bytes
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self._blocks: dict[int, _Block] = {}
        # by stream and size class, the smallest first, then by address
        self._free: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        self._next = _FIRST_ADDRESS

    def add_segment(
        self, size_bytes: int, *, small: bool, address: int | None = None, stream: int = 0
    ) -> int:
        """A free segment that was there before; returns its address.

        Args:
            small: whether it is of the pool for sizes up to 1 MiB.
            address: where it lies; None makes one up.
        """
        if address is None:
            address, self._next = self._next, self._next + max(_APART, size_bytes)
        block = _Block(address=address, size=size_bytes, small=small, stream=stream)
        self._blocks[address] = block
        insort(self._pool(block), (size_bytes, address))
        self.reserved_bytes += size_bytes
        return address

    def take(self, size_bytes: int, *, stream: int = 0) -> int:
        """Returns the address of a block: the smallest free one that is large enough, else of a new segment.

        Raises:
            AllocatorError: a size below zero.
            DeviceMemoryError: segments would be larger than the capacity, also without those that are free.
        """
        if size_bytes < 0:
            raise AllocatorError(f"a block cannot have {size_bytes} bytes", fix="give 0 or more")
        size = rounded_bytes(size_bytes)
        small = size <= SMALL_BYTES
        pool = self._free.setdefault((stream, small), [])
        place = bisect_left(pool, (size, -1))
        if place == len(pool):
            self._new_segment(size, small, stream)
            place = bisect_left(pool, (size, -1))
        block = self._blocks[pool.pop(place)[1]]
        rest = block.size - size
        # a large block stays whole where what is left of it would serve the small pool only
        if rest >= MIN_BLOCK_BYTES if small else rest > SMALL_BYTES:
            self._split(block, size)
        block.free = False
        self.allocated_bytes += block.size
        return block.address

    def size_of(self, address: int) -> int:
        """Bytes of the block there, which may be more than were asked for."""
        return self._taken(address).size

    def give_back(self, address: int) -> None:
        """Free a block and join it with free neighbours of its segment.

        Raises:
            AllocatorError: no block is taken there.
        """
        block = self._taken(address)
        self.allocated_bytes -= block.size
        block.free = True
        if block.before is not None and block.before.free:
            block = self._join(block.before, block)
        if block.behind is not None and block.behind.free:
            block = self._join(block, block.behind)
        insort(self._pool(block), (block.size, block.address))

    def empty_cache(self) -> int:
        """Give segments of which nothing is taken back to the device; returns their bytes."""
        whole = [b for b in self._blocks.values() if b.free and b.before is None and b.behind is None]
        for block in whole:
            self._forget(block)
            del self._blocks[block.address]
            self.reserved_bytes -= block.size
        return sum(block.size for block in whole)

    @property
    def free_blocks(self) -> Iterable[tuple[int, int]]:
        """(address, bytes) of each block that is cached."""
        return ((address, size) for pool in self._free.values() for size, address in pool)

    def _new_segment(self, size: int, small: bool, stream: int) -> None:
        wanted = segment_bytes(size)
        capacity = self.capacity_bytes
        if capacity is not None and self.reserved_bytes + wanted > capacity:
            self.empty_cache()
            if self.reserved_bytes + wanted > capacity:
                raise DeviceMemoryError(
                    f"{size / 1e6:.1f} MB more do not fit on the device",
                    why=f"{self.allocated_bytes / 1e6:.1f} MB are allocated and"
                    f" {self.reserved_bytes / 1e6:.1f} MB reserved of {capacity / 1e6:.1f} MB;"
                    f" a segment of {wanted / 1e6:.1f} MB is needed",
                    fix="take a smaller batch, recompute activations, or accumulate gradients",
                )
        self.add_segment(wanted, small=small, stream=stream)

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(
            address=block.address + size,
            size=block.size - size,
            small=block.small,
            stream=block.stream,
            before=block,
            behind=block.behind,
        )
        if block.behind is not None:
            block.behind.before = rest
        block.behind, block.size = rest, size
        self._blocks[rest.address] = rest
        insort(self._pool(rest), (rest.size, rest.address))

    def _join(self, first: _Block, second: _Block) -> _Block:
        """Of two neighbours, one of which is in its pool."""
        for one in (first, second):
            self._forget(one)
        del self._blocks[second.address]
        first.size += second.size
        first.behind = second.behind
        if second.behind is not None:
            second.behind.before = first
        return first

    def _forget(self, block: _Block) -> None:
        pool, row = self._pool(block), (block.size, block.address)
        place = bisect_left(pool, row)
        if place < len(pool) and pool[place] == row:
            del pool[place]

    def _taken(self, address: int) -> _Block:
        block = self._blocks.get(address)
        if block is None or block.free:
            raise AllocatorError(
                f"no block is taken at {address:#x}",
                why="it was given back before, or never taken",
                fix="give back each block once, at the address that take returned",
            )
        return block

    def _pool(self, block: _Block) -> list[tuple[int, int]]:
        return self._free.setdefault((block.stream, block.small), [])
