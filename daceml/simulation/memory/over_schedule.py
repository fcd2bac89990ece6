"""Memory over time of a simulated graph, from the tasks that take and give back blocks."""

from __future__ import annotations

import numpy as np

from daceml.errors import AllocationError
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
        AllocationError: a task that the graph does not have, or one that gives back what is not taken yet.
        DeviceMemoryError: the allocator's capacity does not suffice.
    """
    allocations.check(len(schedule))
    _require_taken_first(schedule, allocations)
    place = np.empty(len(schedule), np.int64)
    place[schedule.order] = np.arange(len(schedule))
    some = allocations.size_bytes > 0  # what has no bytes is nowhere
    taken = np.flatnonzero(some & (allocations.taken_by != NOTHING))
    given = np.flatnonzero(some & (allocations.given_back_by != NOTHING))
    takers, givers = allocations.taken_by[taken], allocations.given_back_by[given]
    first = np.flatnonzero(some & (allocations.taken_by == NOTHING))
    time_us = np.concatenate((np.zeros(len(first)), schedule.start_us[takers], schedule.end_us[givers]))
    rank = np.concatenate((np.full(len(first), -1), 2 * place[takers], 2 * place[givers] + 1))
    block = np.concatenate((first, taken, given))
    size = np.concatenate(
        (allocations.size_bytes[first], allocations.size_bytes[taken], -allocations.size_bytes[given])
    )
    order = np.lexsort((rank, time_us))
    events = AllocatorEvents(time_us=time_us[order], block=block[order], size_bytes=size[order])
    return replay_events(events, allocator)


def _require_taken_first(schedule: Schedule, allocations: Allocations) -> None:
    both = np.flatnonzero((allocations.taken_by != NOTHING) & (allocations.given_back_by != NOTHING))
    taker, giver = allocations.taken_by[both], allocations.given_back_by[both]
    wrong = np.flatnonzero(schedule.end_us[giver] < schedule.start_us[taker])
    if len(wrong):
        row, name = int(both[wrong[0]]), schedule.graph.name_of
        first, last = int(taker[wrong[0]]), int(giver[wrong[0]])
        raise AllocationError(
            f"block {row} is given back before it is taken",
            why=f"{name(last)!r}, task {last}, ends at {schedule.end_us[last]:g} us;"
            f" {name(first)!r}, task {first}, begins at {schedule.start_us[first]:g} us",
            fix="let the task that takes a block come before the one that gives it back",
        )
