"""Replay of memory events: allocated and reserved bytes as a model of the allocator gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daceml.profiling.trace import Trace
from daceml.simulation.graph import Ints
from daceml.simulation.memory.caching_allocator import (
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    CachingAllocator,
)
from daceml.simulation.memory.events import PROCESSOR, AllocatorEvents, trace_events
from daceml.simulation.memory.timeline import MemoryTimeline


@dataclass(frozen=True, kw_only=True)
class TraceReplay:
    """A run's memory as it was recorded, and as the model of the allocator replays it.

    Attributes:
        recorded: what the profiler said.
        replayed: with what was cached before the trace as whole as it can be: `reserved_bytes` is the least
            that the run needs.
        without_cache: as if nothing of what was cached could be used: the most that it can need.
        unknown_frees: events that give back a block taken before the trace.
    """

    recorded: MemoryTimeline
    replayed: MemoryTimeline
    without_cache: MemoryTimeline
    unknown_frees: int

    @property
    def allocated_error(self) -> float:
        """The largest difference of any moment, of the recorded peak."""
        return _error(self.replayed.allocated_bytes, self.recorded.allocated_bytes)

    @property
    def reserved_error(self) -> float:
        """Likewise of what is reserved; NaN where the profiler did not say it."""
        if not self.recorded.peak_reserved_bytes:
            return float("nan")
        return _error(self.replayed.reserved_bytes, self.recorded.reserved_bytes)


def replay_events(events: AllocatorEvents, allocator: CachingAllocator | None = None) -> MemoryTimeline:
    """Allocated and reserved bytes after every event.

    Blocks that are given back and were taken before the first event come out of what was held.

    Args:
        allocator: as it is before the first event, without what is held; None is an allocator as a
            processor's: it rounds nothing and keeps nothing.
    Raises:
        DeviceMemoryError: the allocator's capacity does not suffice.
    """
    if allocator is None:
        allocated = events.held_bytes + np.cumsum(events.size_bytes)
        reserved = np.maximum(allocated, events.held_reserved_bytes)
    else:
        allocated, reserved = _through(events, allocator)
    return MemoryTimeline(
        time_us=events.time_us,
        block=events.block,
        size_bytes=events.size_bytes,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        held_bytes=events.held_bytes,
        held_reserved_bytes=events.held_reserved_bytes,
    )


def _through(events: AllocatorEvents, allocator: CachingAllocator) -> tuple[Ints, Ints]:
    """Allocated and reserved bytes behind every event, one after the other."""
    allocated, reserved = np.empty(len(events), np.int64), np.empty(len(events), np.int64)
    held, beside = events.held_bytes, events.held_reserved_bytes - allocator.reserved_bytes
    live: dict[int, int] = {}  # block -> its address in the model
    for row, (block, size) in enumerate(zip(events.block.tolist(), events.size_bytes.tolist(), strict=True)):
        if size > 0:
            live[block] = allocator.take(size)
        elif block in live:
            allocator.give_back(live.pop(block))
        else:
            held += size
        allocated[row] = allocator.allocated_bytes + held
        reserved[row] = allocator.reserved_bytes + beside
    return allocated, reserved


def replay_trace(trace: Trace, device: int = 0) -> TraceReplay:
    """Replay the memory events of a recorded run through the model of its allocator.

    What was cached before the trace is unknown but for its size: the replay has it in whole pieces, and
    `without_cache` has none of it.

    Raises:
        AllocationError: the run has no memory events of the device, or they have no addresses.
    """
    events = trace_events(trace, device)
    mine = trace.memory.device == device
    allocated, reserved = trace.memory.allocated_bytes[mine], trace.memory.reserved_bytes[mine]
    recorded = MemoryTimeline(
        time_us=events.time_us,
        block=events.block,
        size_bytes=events.size_bytes,
        allocated_bytes=np.nan_to_num(allocated).astype(np.int64),
        reserved_bytes=np.nan_to_num(reserved).astype(np.int64),
        held_bytes=events.held_bytes,
        held_reserved_bytes=events.held_reserved_bytes,
    )
    on_device = device != PROCESSOR
    return TraceReplay(
        recorded=recorded,
        replayed=replay_events(events, _with_cache(events) if on_device else None),
        without_cache=replay_events(events, CachingAllocator() if on_device else None),
        unknown_frees=sum(1 for _ in _given_back_unseen(events)),
    )


def _with_cache(events: AllocatorEvents) -> CachingAllocator:
    """An allocator that has cached what is reserved and not allocated before the first event.

    Of the small pool, whole segments for the most of it that the run has at once; the rest is of the large
    pool.
    """
    allocator = CachingAllocator()
    cached = max(events.held_reserved_bytes - events.held_bytes, 0)
    small = np.abs(events.size_bytes) <= SMALL_BYTES
    unseen = np.zeros(len(events), np.bool_)
    unseen[list(_given_back_unseen(events))] = True
    most_small = int(np.cumsum(np.where(small & ~unseen, events.size_bytes, 0)).max(initial=0))
    segments = min(-(-most_small // SMALL_SEGMENT_BYTES), cached // SMALL_SEGMENT_BYTES)
    if segments:
        allocator.add_segment(segments * SMALL_SEGMENT_BYTES, small=True)
    rest = cached - segments * SMALL_SEGMENT_BYTES
    if rest > 0:
        allocator.add_segment(rest, small=False)
    return allocator


def _given_back_unseen(events: AllocatorEvents) -> Iterator[int]:
    """Rows that give back what was taken before the first event."""
    live: set[int] = set()
    for row, (block, size) in enumerate(zip(events.block.tolist(), events.size_bytes.tolist(), strict=True)):
        if size > 0:
            live.add(block)
        elif block in live:
            live.remove(block)
        else:
            yield row


def _error(seen: Ints, recorded: Ints) -> float:
    return float(np.abs(seen - recorded).max(initial=0)) / max(float(recorded.max(initial=0)), 1.0)
