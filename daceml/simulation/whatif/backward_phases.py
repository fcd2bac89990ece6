"""Where each step of a run computes gradients, and who needs them: what communication is hung between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import NOTHING, Mask, TaskGraph
from daceml.simulation.task import Phase, TaskKind

Indices = NDArray[np.intp]


def computing(graph: TaskGraph) -> Mask:
    """[n] what computes: work of the device, or of the CPU where the run has no device."""
    kinds = graph.tasks.kind
    device = graph.on_device() & (kinds != TaskKind.COLLECTIVE)
    return device if (device & (kinds == TaskKind.KERNEL)).any() else kinds == TaskKind.OPERATOR


@dataclass(frozen=True, kw_only=True, eq=False)
class BackwardPhase:
    """The backward phase of one step.

    Attributes:
        step: its number.
        tasks: that compute in it, by the moment at which they start.
        layers: of each layer that has some, the last task of each lane.
        waiting: the first task behind the phase on each lane that ran it: torch's wait for its collectives.
    """

    step: int
    tasks: Indices
    layers: dict[str, tuple[int, ...]]
    waiting: tuple[int, ...]

    def releasing(self, layers: Sequence[str]) -> tuple[int, ...]:
        """The last task on each lane that computes for these layers, by start; none where none is known."""
        found = {task for layer in layers for task in self.layers.get(nearest(layer, self.layers) or "", ())}
        return tuple(task for task in self.tasks.tolist() if task in found)

    def at_share(self, graph: TaskGraph, share: float) -> tuple[int, ...]:
        """The task with whose end this share of the phase's work is done; all lanes' last ones at the end."""
        if share >= 1 - 1e-9:
            lanes = graph.tasks.lane[self.tasks]
            last = sorted(int(np.flatnonzero(lanes == lane)[-1]) for lane in np.unique(lanes))
            return tuple(int(self.tasks[place]) for place in last)
        done = np.cumsum(graph.tasks.duration_us[self.tasks])
        place = int(np.searchsorted(done, share * done[-1] * (1 - 1e-12)))
        return (int(self.tasks[min(place, len(done) - 1)]),)


def nearest(layer: str, known: dict[str, tuple[int, ...]]) -> str | None:
    """The layer itself, the innermost known one around it, or one inside it; None where there is none."""
    around = layer
    while around:
        if around in known:
            return around
        around = around.rpartition(".")[0]
    inside = [name for name in known if name.startswith(layer + ".")] if layer else []
    return inside[-1] if inside else None


def backward_phases(graph: TaskGraph, schedule: Schedule) -> tuple[BackwardPhase, ...]:
    """Those of all steps, in their order; work outside of all steps counts only where there are no steps.

    Args:
        schedule: of this graph: in what order lanes come to their work.
    """
    tasks = graph.tasks
    work = computing(graph)
    backward = work & (tasks.phase == Phase.BACKWARD)
    steps = np.unique(tasks.step[backward])
    if (steps != NOTHING).any():
        steps = steps[steps != NOTHING]
    return tuple(_phase(graph, schedule, work, backward, int(step)) for step in steps)


def _phase(graph: TaskGraph, schedule: Schedule, work: Mask, backward: Mask, step: int) -> BackwardPhase:
    tasks, start_us = graph.tasks, _in_lane_order(graph, schedule.start_us)
    members = np.flatnonzero(backward & (tasks.step == step))
    members = members[np.lexsort((members, start_us[members]))]
    layers: dict[str, dict[int, int]] = {}
    for task in members.tolist():
        layers.setdefault(graph.layer_of(task), {})[int(tasks.lane[task])] = task
    layers.pop("", None)
    return BackwardPhase(
        step=step,
        tasks=members,
        layers={layer: tuple(last.values()) for layer, last in layers.items()},
        waiting=_waiting(graph, start_us, work, members, step),
    )


def _in_lane_order(graph: TaskGraph, start_us: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] starts that never fall along a lane, though a kernel may start before the one before it ends."""
    found = start_us.copy()
    for lane in range(len(graph.lanes)):
        if graph.lanes[lane].ordered:
            members = graph.lane_members(lane)
            found[members] = np.maximum.accumulate(start_us[members])
    return found


def _waiting(
    graph: TaskGraph, start_us: NDArray[np.float64], work: Mask, members: Indices, step: int
) -> tuple[int, ...]:
    """What each lane of the backward phase, or of its step's optimizer, comes to next when the phase is over.

    A phase is over when its last task has started: whatever starts later cannot release that one.
    """
    tasks = graph.tasks
    optimizer = work & (tasks.phase == Phase.OPTIMIZER) & (tasks.step == step)
    over_us = start_us[members].max()
    own = np.zeros(len(graph), np.bool_)
    own[members] = True
    found: list[int] = []
    for lane in np.union1d(tasks.lane[members], tasks.lane[optimizer]):
        last = members[tasks.lane[members] == lane]
        behind = np.arange(len(graph)) > (last.max() if len(last) else -1)
        later = np.flatnonzero(work & (tasks.lane == lane) & behind & ~own & (start_us >= over_us))
        if len(later):
            found.append(int(later[0]))
    return tuple(found)
