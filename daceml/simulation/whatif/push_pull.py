"""Parameter servers: gradients are pushed to them, and weights are pulled before the next step needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daceml.simulation.engine.replay import simulate
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.edit import NewEdge, NewTask, with_tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind
from daceml.simulation.whatif.backward_phases import backward_phases, computing, nearest
from daceml.simulation.whatif.gradients import Gradient

PUSH = Lane(kind="channel", name="push", ordered=False)
PULL = Lane(kind="channel", name="pull", ordered=False)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A piece of a gradient that is sent by itself.

    Attributes:
        duration_us: of its push, and of its pull.
    """

    gradient: Gradient
    size_bytes: float
    duration_us: float


def with_push_pull(graph: TaskGraph, slices: Sequence[Slice]) -> TaskGraph:
    """The graph in which every backward phase pushes slices as soon as their layer has computed them.

    The pull of a slice follows its push; the layer's forward work of the next step waits for it. Slices have
    the priority of their layer: the sooner the next step needs it, the higher.
    """
    schedule = simulate(graph)
    phases = backward_phases(graph, schedule)
    push, pull = len(graph.lanes), len(graph.lanes) + 1
    tasks: list[NewTask] = []
    edges: list[NewEdge] = []
    for phase in phases:
        uses = _first_uses(graph, schedule, phase.step + 1)
        own = _first_uses(graph, schedule, phase.step)
        rank = {layer: number for number, layer in enumerate(own)}
        everything = tuple(dict.fromkeys(task for first in uses.values() for task in first))[:1]
        for piece in slices:
            layer = piece.gradient.layer
            released = phase.releasing((layer,)) or phase.at_share(graph, 1.0)
            needed = uses.get(nearest(layer, uses) or "", everything)
            priority = -float(rank.get(nearest(layer, own) or "", 0))
            for lane, name in ((push, "push"), (pull, "pull")):
                tasks.append(
                    NewTask(
                        name=f"{name} of {piece.gradient.name}", kind=TaskKind.COLLECTIVE, lane=lane,
                        duration_us=piece.duration_us, size_bytes=piece.size_bytes, layer=layer,
                        step=phase.step, phase=Phase.BACKWARD, priority=priority,
                    )
                )  # fmt: skip
            pushed, pulled = ~(len(tasks) - 2), ~(len(tasks) - 1)
            edges.extend((source, pushed, 0.0, False, EdgeKind.CHANNEL) for source in released)
            edges.append((pushed, pulled, 0.0, False, EdgeKind.CHANNEL))
            edges.extend((pulled, target, 0.0, False, EdgeKind.CHANNEL) for target in needed)
    return with_tasks(graph, tasks, edges, lanes=(PUSH, PULL))


def _first_uses(graph: TaskGraph, schedule: Schedule, step: int) -> dict[str, tuple[int, ...]]:
    """The forward work of a step that each layer begins with, on each lane; layers in the order of use."""
    tasks = graph.tasks
    forward = np.flatnonzero(computing(graph) & (tasks.phase == Phase.FORWARD) & (tasks.step == step))
    forward = forward[np.lexsort((forward, schedule.start_us[forward]))]
    found: dict[str, dict[int, int]] = {}
    for task in forward.tolist():
        found.setdefault(graph.layer_of(task), {}).setdefault(int(tasks.lane[task]), task)
    found.pop("", None)
    return {layer: tuple(first.values()) for layer, first in found.items()}
