"""The blocks of a step that nobody has run: by tasks of its graph, and as an allocator reserves them."""

from __future__ import annotations

import numpy as np

from daceml.errors import AllocationError, DeviceMemoryError
from daceml.prediction.model_step import ModelStep
from daceml.simulation.graph import NOTHING, Ints, TaskGraph
from daceml.simulation.memory.allocations import Allocations
from daceml.simulation.memory.caching_allocator import CachingAllocator
from daceml.simulation.memory.events import AllocatorEvents
from daceml.simulation.memory.replay import replay_events
from daceml.simulation.memory.timeline import MemoryTimeline
from daceml.simulation.task import TaskKind


def step_allocations(step: ModelStep, graph: TaskGraph) -> Allocations:
    """Blocks of every step of a graph, of the calls that launch: torch takes and frees memory on the host.

    Parameters and whatever else is there before the step are there from the beginning, and once. What a step
    leaves, which is its gradients, the next one clears before it begins.

    Args:
        graph: as `step_graph` makes it of this step; work of other devices may have been added.
    Raises:
        AllocationError: nobody knows the step's blocks, or the graph is of another step.
    """
    blocks = _blocks(step)
    launching = np.array([one.launches for one in step.operations], np.bool_)
    count = int(launching.sum())
    # what only looks at memory stands between launches
    begins = np.minimum(np.cumsum(launching) - launching, max(count - 1, 0))
    ends = np.maximum(np.cumsum(launching) - 1, 0)
    inside = blocks.taken_by != NOTHING
    found = [blocks.taken(~inside)]
    numbers = np.unique(graph.tasks.step[graph.tasks.step != NOTHING])
    for number in numbers.tolist():
        calls = _calls(graph, number, count)
        of_step = blocks.taken(inside).with_tasks(calls[begins], calls[ends])
        last = NOTHING if number == numbers[-1] else int(calls[-1])
        given = np.where(of_step.given_back_by == NOTHING, last, of_step.given_back_by)
        found.append(
            Allocations(size_bytes=of_step.size_bytes, taken_by=of_step.taken_by, given_back_by=given)
        )
    return Allocations.joined(found)


def memory_in_order(step: ModelStep, *, allocator: CachingAllocator | None = None) -> MemoryTimeline:
    """What a step holds while its operations run one after the other; its times are their numbers.

    Args:
        allocator: of a device, for what it reserves; None counts allocated bytes.
    Raises:
        AllocationError: nobody knows the step's blocks.
        DeviceMemoryError: the allocator's capacity does not suffice.
    """
    blocks = _blocks(step)
    rows = np.flatnonzero(blocks.size_bytes > 0)
    given = rows[blocks.given_back_by[rows] != NOTHING]
    block = np.concatenate((rows, given))
    time = np.concatenate((np.maximum(blocks.taken_by[rows], 0), blocks.given_back_by[given] + 1)).astype(
        np.float64
    )
    size = np.concatenate((blocks.size_bytes[rows], -blocks.size_bytes[given]))
    # between two operations, what is freed goes first; what an operation needs for a moment, it frees last
    taken = np.concatenate(
        (np.where(blocks.taken_by[rows] == NOTHING, -1, 1), np.zeros(len(given), np.int64))
    )
    order = np.lexsort((block, taken, time))
    events = AllocatorEvents(time_us=time[order], block=block[order], size_bytes=size[order])
    return replay_events(events, allocator)


def reserved_bytes(step: ModelStep, room_bytes: int | None = None) -> int | None:
    """What torch's caching allocator reserves of a device at most; None where the blocks are not known.

    Args:
        room_bytes: that segments may have: where they would need more, cached blocks are given back, as torch
            does. Where that does not suffice either, the result is what they would need.
    """
    if step.memory is None or step.memory.allocations is None:
        return None
    needed = memory_in_order(step, allocator=CachingAllocator()).peak_reserved_bytes
    if room_bytes is None or needed <= room_bytes or room_bytes < step.memory.peak:
        return needed
    try:
        allocator = CachingAllocator(capacity_bytes=room_bytes)
        return memory_in_order(step, allocator=allocator).peak_reserved_bytes
    except DeviceMemoryError:
        return needed


def _blocks(step: ModelStep) -> Allocations:
    blocks = None if step.memory is None else step.memory.allocations
    if blocks is None:
        raise AllocationError(
            f"the memory blocks of a step of {step.name} are unknown",
            why="only modules are captured with their blocks",
            fix="capture a module with daceml.prediction.model_steps.predict_step.captured",
        )
    return blocks


def _calls(graph: TaskGraph, number: int, count: int) -> Ints:
    """The tasks that launch, one for each operation that does; a CUDA graph launches all of them."""
    of_step = (graph.tasks.kind == TaskKind.CALL) & (graph.tasks.step == number)
    calls = np.flatnonzero(of_step)
    if len(calls) == 1:
        return np.repeat(calls, max(count, 1))
    if len(calls) != count:
        raise AllocationError(
            f"step {number} of the graph launches {len(calls)} times, and the captured step {count} times",
            where=graph.source,
            fix="give the graph that step_graph makes of this step",
        )
    return calls
