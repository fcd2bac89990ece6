"""Recomputation: layers keep their inputs only, and run forward again before their backward phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daceml.simulation.graph import NOTHING, Ints, TaskGraph
from daceml.simulation.memory.allocations import Allocations
from daceml.simulation.task import Phase
from daceml.simulation.whatif.activation_checkpointing import ActivationCheckpointing
from daceml.simulation.whatif.blocks import launch_of
from daceml.simulation.whatif.optimization import applied
from daceml.simulation.whatif.work import has_device


@dataclass(frozen=True, kw_only=True)
class _Region:
    """Tasks that take memory: of the first time, of the backward phase, and who runs instead the second time.

    Attributes:
        again: task of the first time -> task of the changed graph.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    again: dict[int, int]


def recomputed(graph: TaskGraph, allocations: Allocations, *, layers: str) -> tuple[TaskGraph, Allocations]:
    """The run with activation checkpointing of some layers, and what it holds.

    What a region takes forward and frees backward is freed as soon as the region has taken the next such
    block, and taken again before its backward phase; what its last task takes is its result and stays. Its
    input is what its own backward phase frees; where it frees none, what was taken last before the region and
    freed in it stays until that phase is over.

    Args:
        allocations: of tasks of the graph; of a device, of launches.
        layers: regular expression; layers for which it finds the same text are one region.
    Raises:
        AllocationError: a task that the graph does not have.
        WhatIfError: the run does not tell its layers, or none is found; the message says which.
    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174); which blocks stay
        is as torch.utils.checkpoint does it without reentry.
    """
    allocations.check(len(graph))
    optimization = ActivationCheckpointing(layers=layers)
    changed = applied(optimization, graph)
    regions = _regions(graph, changed, optimization)
    place = changed.index_of(graph.tasks.key)
    size, first, last = (
        column.tolist()
        for column in (allocations.size_bytes, allocations.taken_by, allocations.given_back_by)
    )
    moved = np.append(place, NOTHING)
    rows = [[size[row], int(moved[first[row]]), int(moved[last[row]])] for row in range(len(allocations))]
    phase = np.append(graph.tasks.phase, Phase.OTHER)
    by_taker, by_giver = _rows_of(first), _rows_of(last)
    for region in regions:
        mine = [row for task in region.forward for row in by_taker.get(task, ())]
        within = set(region.forward)
        stays = [row for row in mine if last[row] not in within]
        takers = sorted({first[row] for row in stays})
        for row in mine:
            taker, giver = first[row], last[row]
            again = region.again.get(taker)
            if again is None:
                continue
            if giver in within:  # for a moment, both times
                rows.append([size[row], again, region.again.get(giver, again)])
            elif taker == takers[-1]:
                if giver in region.backward:
                    rows.append([size[row], again, int(moved[giver])])
            elif phase[giver] == Phase.BACKWARD:
                behind = next(task for task in takers if task > taker)
                rows[row][2] = int(moved[behind])
                rows.append([size[row], again, int(moved[giver])])
        entering = [
            [row for task in tasks for row in by_giver.get(task, ()) if _enters(first[row], region, phase)]
            for tasks in (region.backward, region.forward)
        ]
        if not entering[0] and entering[1]:
            unsaved = max(entering[1], key=lambda row: first[row])
            rows[unsaved][2] = int(moved[max(region.backward)])
    return changed, Allocations.of((a, b, c) for a, b, c in rows)


def _rows_of(tasks: Sequence[int]) -> dict[int, list[int]]:
    """Task -> the rows where it stands."""
    found: dict[int, list[int]] = {}
    for row, task in enumerate(tasks):
        found.setdefault(task, []).append(row)
    return found


def _enters(taker: int, region: _Region, phase: Ints) -> bool:
    """Whether a block was taken in the forward phase, before a region."""
    return phase[taker] == Phase.FORWARD and taker < region.forward[0]


def _regions(graph: TaskGraph, changed: TaskGraph, told: ActivationCheckpointing) -> list[_Region]:
    """Those of the what-if question, by the tasks that take memory."""
    device = has_device(graph)
    takers: Ints = launch_of(graph) if device else np.arange(len(graph))
    key = int(graph.tasks.key.max()) + 1 if len(graph) else 0
    found: list[_Region] = []
    for forward, backward in told.regions(graph):
        keys: dict[int, int] = {}
        launched = all(takers[task] >= 0 for task in _first(backward, takers))
        for task in forward:
            taker = int(takers[task])
            # a kernel comes with its launch, whose key is the one before
            if not device or (launched and taker >= 0):
                keys.setdefault(taker, key)
                key += 2 if device else 1
        index = changed.index_of(np.array(list(keys.values()), np.int64))
        found.append(
            _Region(
                forward=tuple(sorted({int(takers[task]) for task in forward if takers[task] >= 0})),
                backward=tuple(sorted({int(takers[task]) for task in backward if takers[task] >= 0})),
                again=dict(zip(keys, index.tolist(), strict=True)),
            )
        )
    return found


def _first(backward: Sequence[int], takers: Ints) -> Sequence[int]:
    """The task in front of which a region runs again."""
    return [min(backward, key=lambda task: (takers[task], task))]
