"""Which tasks of a recorded run take and give back its blocks of memory, from the times of its events."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from daceml.profiling.trace import Trace
from daceml.simulation.graph import NOTHING, Ints, TaskGraph
from daceml.simulation.memory.allocations import Allocations
from daceml.simulation.memory.events import PROCESSOR, trace_events


def recorded_allocations(trace: Trace, graph: TaskGraph, device: int = PROCESSOR) -> Allocations:
    """The blocks that a run took while it was recorded, by tasks of its graph.

    An event belongs to the task of a CPU thread that runs then; between two tasks, what is taken belongs to
    the later one, and what is given back to the earlier one. What a task takes and gives back itself becomes
    one block, as large as it needs at once beside what stays.

    Args:
        trace: whose `build` the graph is, without changes.
        device: number of a GPU, whose blocks belong to launches, or PROCESSOR.
    Returns:
        blocks in the order in which they were taken. Of a GPU, what was held before the trace comes first: a
        block for each that is given back, and one for the rest. Of a processor, nobody says how much that is.
    Raises:
        AllocationError: the run has no memory events of the device, or they have no addresses.
    """
    events = trace_events(trace, device)
    tasks = _of_threads(graph)
    taker, giver = _tasks_at(graph, tasks, events.time_us)
    begins_us = graph.tasks.recorded_us
    live: dict[int, int] = {}  # address -> row
    rows: list[list[int]] = []
    before: list[tuple[int, int, int]] = []
    for index, (block, size) in enumerate(
        zip(events.block.tolist(), events.size_bytes.tolist(), strict=True)
    ):
        if size > 0:
            live[block] = len(rows)
            rows.append([size, int(taker[index]), NOTHING])
        elif block in live:
            row = rows[live.pop(block)]
            # a block that is freed before the task begins that took it is that task's for a moment
            freed = int(giver[index])
            row[2] = freed if begins_us[freed] >= begins_us[row[1]] else row[1]
        else:
            before.append((-size, NOTHING, int(giver[index])))
    within = _with_joined_moments(rows, events.size_bytes, events.block)
    if device == PROCESSOR:
        return within
    rest = max(events.held_bytes - sum(size for size, _, _ in before), 0)
    held = [*before, (rest, NOTHING, NOTHING)] if rest else before
    return Allocations.joined((Allocations.of(held), within))


def _of_threads(graph: TaskGraph) -> Ints:
    """Tasks of CPU threads that were recorded, by their start."""
    threads = np.array([lane.kind == "cpu" for lane in graph.lanes], np.bool_)
    mine = np.flatnonzero(threads[graph.tasks.lane] & np.isfinite(graph.tasks.recorded_us))
    return mine[np.argsort(graph.tasks.recorded_us[mine], kind="stable")]


def _tasks_at(graph: TaskGraph, tasks: Ints, time_us: np.ndarray) -> tuple[Ints, Ints]:
    """Who takes and who gives back at each moment."""
    if not len(tasks):
        nobody = np.full(len(time_us), NOTHING, np.int64)
        return nobody, nobody
    start_us = graph.tasks.recorded_us[tasks]
    end_us = start_us + graph.tasks.duration_us[tasks]
    running = np.searchsorted(start_us, time_us, side="right") - 1
    earlier = np.maximum(running, 0)
    inside = (running >= 0) & (time_us <= end_us[earlier])
    later = np.minimum(running + 1, len(tasks) - 1)
    return tasks[np.where(inside, earlier, later)], tasks[earlier]


def _with_joined_moments(rows: list[list[int]], sizes: Ints, blocks: Ints) -> Allocations:
    """With one block for all that a task takes and gives back itself."""
    level: defaultdict[int, int] = defaultdict(int)  # of what a task has taken and still holds
    most: defaultdict[int, int] = defaultdict(int)
    live: dict[int, int] = {}
    taken = 0
    for block, size in zip(blocks.tolist(), sizes.tolist(), strict=True):
        if size > 0:
            row = live[block] = taken
            taken += 1
            task = rows[row][1]
            level[task] += size
            most[task] = max(most[task], level[task])
        elif block in live:
            size, taker, giver = rows[live.pop(block)]
            if taker == giver:
                level[taker] -= size
    stay = [row for row in rows if row[1] != row[2]]
    moments = [
        (most[task] - level[task], task, task)
        for task in most
        if task != NOTHING and most[task] > level[task]
    ]
    return Allocations.of([*((size, first, last) for size, first, last in stay), *moments])
