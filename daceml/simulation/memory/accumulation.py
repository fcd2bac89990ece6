"""Gradient accumulation: a batch in parts, whose activations are smaller and whose gradients stay."""

from __future__ import annotations

import numpy as np

from daceml.simulation.graph import NOTHING, TaskGraph
from daceml.simulation.memory.allocations import Allocations
from daceml.simulation.task import Phase
from daceml.simulation.whatif.gradient_accumulation import GradientAccumulation
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.optimization import applied


def accumulated(graph: TaskGraph, allocations: Allocations, *, every: int) -> tuple[TaskGraph, Allocations]:
    """The recorded batch in so many parts: a step of the graph becomes one part, and what a part holds.

    Whatever is taken in the forward and backward phases is as much smaller as a part is, but gradients. Those
    are there from the first part on, and each part has new ones besides until they are added. Parts behind
    the first are meant, which need the most.

    Args:
        allocations: of tasks of the graph.
    Raises:
        AllocationError: a task that the graph does not have.
        WhatIfError: fewer than 2 parts, or no work of an optimizer.
    """
    allocations.check(len(graph))
    changed = applied(GradientAccumulation(every=every), graph)
    changed = applied(LargerBatch(ratio=1.0 / every), changed)
    phase = np.append(graph.tasks.phase, Phase.OTHER)
    step = np.append(graph.tasks.step, NOTHING)
    takers, givers = allocations.taken_by, allocations.given_back_by
    backward = phase[takers] == Phase.BACKWARD
    grows = backward | (phase[takers] == Phase.FORWARD)
    passed = (step[givers] == step[takers]) & np.isin(phase[givers], (Phase.FORWARD, Phase.BACKWARD))
    gradient = backward & ~passed
    size = np.where(grows & ~gradient, -(-allocations.size_bytes // every), allocations.size_bytes)
    # a new gradient is given back when the task behind the one that made it has run
    behind = np.append(graph.structure.after, NOTHING)[takers]
    added = np.where(behind == NOTHING, takers, behind)
    parts = Allocations(size_bytes=size, taken_by=takers, given_back_by=np.where(gradient, added, givers))
    kept = _of_one_step(allocations, gradient, step[takers])
    return changed, Allocations(
        size_bytes=np.concatenate((parts.size_bytes, kept)),
        taken_by=np.concatenate((parts.taken_by, np.full(len(kept), NOTHING))),
        given_back_by=np.concatenate((parts.given_back_by, np.full(len(kept), NOTHING))),
    )


def _of_one_step(allocations: Allocations, chosen: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Sizes of the chosen blocks of the step that has the most of them."""
    sums = {
        int(one): int(allocations.size_bytes[chosen & (steps == one)].sum())
        for one in np.unique(steps[chosen])
    }
    if not sums:
        return np.zeros(0, np.int64)
    largest = max(sums, key=lambda one: sums[one])
    return allocations.size_bytes[chosen & (steps == largest)]
