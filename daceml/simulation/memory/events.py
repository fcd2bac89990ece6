"""What allocators did in a run: blocks that are taken and given back, in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daceml.errors import AllocationError
from daceml.profiling.trace import UNKNOWN, Trace
from daceml.simulation.graph import Floats, Ints

PROCESSOR = -1
"""The number of the processor among devices, as in `daceml.profiling.trace.Memory`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AllocatorEvents:
    """Columns of n events of one device, in their order.

    Attributes:
        time_us: [n] never falling.
        block: [n] who is taken or given back: a number, or the address; it may serve again afterwards.
        size_bytes: [n] above zero where a block is taken, below where it is given back.
        held_bytes, held_reserved_bytes: what was allocated and reserved before the first event.
    """

    time_us: Floats
    block: Ints
    size_bytes: Ints
    held_bytes: int = 0
    held_reserved_bytes: int = 0

    def __len__(self) -> int:
        return len(self.time_us)


def trace_events(trace: Trace, device: int = 0) -> AllocatorEvents:
    """The memory events of a recorded run.

    A trace begins in the middle of a run: what was held before is what the profiler says at the first event,
    less what that event changed.

    Args:
        device: number of a GPU, or PROCESSOR.
    Raises:
        AllocationError: the run has no memory events of the device, or they have no addresses.
    """
    memory = trace.memory
    mine = np.flatnonzero((memory.device == device) & (memory.size_bytes != 0))
    name = "the processor" if device == PROCESSOR else f"device {device}"
    if not len(mine):
        raise AllocationError(
            f"the run says nothing of the memory of {name}",
            where=trace.source,
            why="its profiler did not record memory",
            fix="record with profile_memory=True, or name a device that it tells of",
        )
    if (memory.address[mine] == UNKNOWN).any():
        raise AllocationError(
            f"events of the memory of {name} have no addresses",
            where=trace.source,
            why="which block is given back cannot be known without",
            fix="record with a torch of 1.11 or later",
        )
    size = memory.size_bytes[mine]
    known = memory.allocated_bytes[mine[0]] - size[0]
    reserved = memory.reserved_bytes[mine[0]]
    return AllocatorEvents(
        time_us=memory.time_us[mine],
        block=memory.address[mine],
        size_bytes=size.astype(np.int64),
        held_bytes=int(known) if known > 0 else 0,
        held_reserved_bytes=int(reserved) if reserved > 0 else 0,
    )
