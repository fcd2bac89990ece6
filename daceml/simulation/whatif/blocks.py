"""Runs of work that belong together: what a layer runs forward, and what it runs backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.task import EdgeKind, Phase


@dataclass(frozen=True, kw_only=True)
class Block:
    """Work of one layer in one phase of one step, in the order of its lane.

    Attributes:
        layer: empty where nobody knows it.
    """

    layer: str
    step: int
    tasks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a layer runs forward and what it runs backward, in one step."""

    forward: Block
    backward: Block


def blocks(graph: TaskGraph, mask: Mask, phase: Phase) -> list[Block]:
    """Runs of selected work of one layer and operator that stand together, or between other tasks of it."""
    tasks = graph.tasks
    taken = mask & (tasks.phase == phase)
    found: list[list[int]] = []
    for lane in range(len(graph.lanes)):
        previous = None
        for task in graph.lane_members(lane).tolist():
            if tasks.phase[task] != phase:
                continue
            same = previous is not None and all(
                column[previous] == column[task] for column in (tasks.step, tasks.layer, tasks.operator)
            )
            if not taken[task]:  # a memset of the same operator is no end of its run
                previous = previous if same and tasks.operator[task] >= 0 else None
                continue
            if same:
                found[-1].append(task)
            else:
                found.append([task])
            previous = task
    return [
        Block(layer=graph.layer_of(run[0]), step=int(tasks.step[run[0]]), tasks=tuple(run)) for run in found
    ]


def pairs(graph: TaskGraph, mask: Mask) -> tuple[list[Pair], str | None]:
    """The selected work forward and backward, in forward order; and why it could not be paired, or None.

    By layers where they are known. Else backward runs in the reverse order of forward, which holds for models
    without branches between layers of the selected kind, and is only taken where both counts are the same.
    """
    found: list[Pair] = []
    forward, backward = blocks(graph, mask, Phase.FORWARD), blocks(graph, mask, Phase.BACKWARD)
    if not forward or not backward:
        return [], f"it has {len(forward)} such layers forward and {len(backward)} backward"
    for step in sorted({block.step for block in forward}):
        there = _joined([block for block in forward if block.step == step])
        back = _joined([block for block in backward if block.step == step])
        by_layer = {block.layer: block for block in back if block.layer}
        if all(block.layer in by_layer for block in there):
            found += [Pair(forward=block, backward=by_layer[block.layer]) for block in there]
        elif len(there) == len(back):
            found += [Pair(forward=a, backward=b) for a, b in zip(there, reversed(back), strict=True)]
        elif back:
            return [], (
                f"step {step} runs {len(there)} such layers forward and {len(back)} backward, and which"
                " belongs to which is unknown without the names of modules"
            )
    return found, None


def _joined(parts: list[Block]) -> list[Block]:
    """Blocks of one layer as one, where it is known."""
    by_layer: dict[str, list[Block]] = {}
    for number, block in enumerate(parts):
        by_layer.setdefault(block.layer or f"\0{number}", []).append(block)
    return [
        Block(layer=same[0].layer, step=same[0].step, tasks=tuple(t for block in same for t in block.tasks))
        for same in by_layer.values()
    ]


def launch_of(graph: TaskGraph) -> NDArray[np.int64]:
    """[n] the call that launches each task, -1 where none was recorded."""
    launch = graph.edges.kind == EdgeKind.LAUNCH
    found = np.full(len(graph), -1, np.int64)
    found[graph.edges.target[launch]] = graph.edges.source[launch]
    return found
