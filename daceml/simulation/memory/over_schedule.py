"""Memory over time of a simulated graph, from the tasks that take and give back blocks."""

from __future__ import annotations

import numpy as np

from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import NOTHING
from daceml.simulation.memory.allocations import Allocations
from daceml.simulation.memory.caching_allocator import CachingAllocator
from daceml.simulation.memory.events import AllocatorEvents
from daceml.simulation.memory.replay import replay_events
from daceml.simulation.memory.timeline import MemoryTimeline


def memory_over_time(
    schedule: Schedule, allocations: Allocations, *, allocator: CachingAllocator | None = None
) -> MemoryTimeline:
    """What a schedule holds when.

    Where a task ends as another one starts, the order in which the simulation took them decides: a task that
    waits for another one finds what that has given back.

    Args:
        allocations: of tasks of the schedule's graph, of one device. Torch takes a device's blocks when the
            host launches, so that they belong to launches.
        allocator: what reserves memory, whose state this changes; None: nothing is rounded or cached.
    Returns:
        the timeline, whose block numbers are rows of `allocations`; what is there before all tasks is taken
        at time zero.
    Raises:
        AllocationError: a task that the graph does not have.
        DeviceMemoryError: the allocator's capacity does not suffice.
    """
    allocations.check(len(schedule))
    place = np.empty(len(schedule), np.int64)
    place[schedule.order] = np.arange(len(schedule))
    taken = np.flatnonzero(allocations.taken_by != NOTHING)
    given = np.flatnonzero(allocations.given_back_by != NOTHING)
    takers, givers = allocations.taken_by[taken], allocations.given_back_by[given]
    first = np.flatnonzero(allocations.taken_by == NOTHING)
    time_us = np.concatenate((np.zeros(len(first)), schedule.start_us[takers], schedule.end_us[givers]))
    rank = np.concatenate((np.full(len(first), -1), 2 * place[takers], 2 * place[givers] + 1))
    block = np.concatenate((first, taken, given))
    size = np.concatenate(
        (allocations.size_bytes[first], allocations.size_bytes[taken], -allocations.size_bytes[given])
    )
    order = np.lexsort((rank, time_us))
    events = AllocatorEvents(time_us=time_us[order], block=block[order], size_bytes=size[order])
    return replay_events(events, allocator)
