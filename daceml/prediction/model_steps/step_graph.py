"""The task graph of a step that nobody has run: a thread that launches, and a stream that works."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.prediction.model_step import ModelStep
from daceml.prediction.model_steps.host_cost import LATENCY_US, HostCost
from daceml.simulation.graph import NOTHING, Edges, Floats, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind
from daceml.simulation.whatif.optimization import Side

STEPS = 3
"""That are simulated: a host that is ahead of its device is so from the second step on."""

_PHASES = {"forward": Phase.FORWARD, "backward": Phase.BACKWARD, "optimizer": Phase.OPTIMIZER}
_LANES = (Lane(kind="cpu", name="thread"), Lane(kind="stream", name="gpu 0 stream 7", device=0))


def step_graph(
    step: ModelStep,
    durations_us: Sequence[float] | Floats,
    *,
    host: HostCost | None = None,
    side: Side = "likely",
    steps: int = STEPS,
) -> TaskGraph:
    """So many steps, one after the other, without a synchronisation between them.

    Each call that launches is a task of the thread, and what it launches one of the stream, in order. Calls
    that only look at memory are time between tasks of the thread.

    Args:
        durations_us: [operations] on the device; of those that launch nothing, not looked at.
        side: which of the host's figures count.
    """
    host = (host or HostCost()).at(side)
    launches = [number for number, one in enumerate(step.operations) if one.launches]
    count = len(launches)
    calls = 1 if host.graphed else count
    duration_us, gap_us = _host_times(step, launches, host, side)
    kernel_us = np.asarray(durations_us, np.float64)[launches]
    names: dict[str, int] = {}

    def named(text: str) -> int:
        return names.setdefault(text, len(names))

    operators = [step.operations[number].operation.operator for number in launches]
    operator = [named(name) for name in operators]
    call_name = (
        [named("graph launch")] if host.graphed else [named(f"launch of {name}") for name in operators]
    )
    layer = [named(layer_of(step, step.operations[number].layer)) for number in launches]
    phase = [_PHASES[step.operations[number].phase] for number in launches]

    def column(of_calls: object, of_kernels: object, kind: type) -> np.ndarray:
        """Of every step: first its calls, then its kernels."""
        one = np.concatenate([np.broadcast_to(of_calls, calls), np.broadcast_to(of_kernels, count)])  # pyright: ignore
        return np.tile(one, steps).astype(kind)

    total = steps * (calls + count)
    spacing_us = host.spacing_us(side) if host.graphed else 0.0
    tasks = Tasks(
        key=np.arange(total, dtype=np.int64),
        name=column(call_name, operator, np.int64),
        layer=column(NOTHING if host.graphed else layer, layer, np.int64),
        operator=column(NOTHING if host.graphed else operator, operator, np.int64),
        kind=column(TaskKind.CALL, TaskKind.KERNEL, np.int64),
        phase=column(Phase.OTHER if host.graphed else phase, phase, np.int64),
        lane=column(0, 1, np.int64),
        step=np.repeat(np.arange(steps), calls + count).astype(np.int64),
        duration_us=column(duration_us, kernel_us, np.float64),
        gap_us=column(gap_us, spacing_us, np.float64),
        recorded_us=np.full(total, np.nan),
        size_bytes=np.full(total, np.nan),
        priority=np.zeros(total),
    )
    begins = np.repeat(np.arange(steps) * (calls + count), count)
    within = np.tile(np.arange(count), steps)
    source = begins + (0 if host.graphed else within)
    edges = Edges(
        source=source.astype(np.int64),
        target=(begins + calls + within).astype(np.int64),
        lag_us=np.full(len(source), LATENCY_US),
        from_start=np.ones(len(source), np.bool_),
        kind=np.full(len(source), EdgeKind.LAUNCH, np.int64),
    )
    return TaskGraph(
        tasks=tasks,
        edges=edges,
        lanes=_LANES,
        names=tuple(names),
        step_names=tuple(f"step {number}" for number in range(steps)),
        source=step.name,
    )


def layer_of(step: ModelStep, layer: str) -> str:
    """What a layer is called in a graph, where the outermost module needs a name, too."""
    return layer or step.name


def _host_times(
    step: ModelStep, launches: Sequence[int], host: HostCost, side: Side
) -> tuple[np.ndarray, np.ndarray]:
    """How long each call takes the thread, and how long it is busy with views before."""
    if host.graphed:
        return np.array([host.launch_us(len(launches), side)]), np.zeros(1)
    between = np.diff(np.array([-1, *launches])) - 1
    return np.full(len(launches), host.call_us.likely), between * host.view_us.likely
