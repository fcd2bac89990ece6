"""The task graph of a step under a plan: a lane for each device, one for each stage of what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.distributed.strategy.plan import FusedTime, Plan
from daceml.simulation.distributed.strategy.synchronization import Synchronization
from daceml.simulation.distributed.strategy.training_step import Part, TrainingStep
from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepGraph:
    """A graph and where in it the parts of the plan are.

    Attributes:
        groups: [devices, groups] numbers of tasks; updates: [devices].
        first_sent, last_sent: [buckets] numbers of the tasks with which sending a bucket begins and ends.
    """

    graph: TaskGraph
    groups: Ints
    updates: Ints
    first_sent: Ints
    last_sent: Ints


def step_graph(
    step: TrainingStep,
    plan: Plan,
    synchronization: Synchronization,
    fused_us: FusedTime,
    *,
    alike: bool = True,
) -> StepGraph:
    """A step in which each bucket is sent when all devices have its tensors, one bucket after the other.

    Args:
        fused_us: how long fused computations take.
        alike: whether devices that take equally long are one lane, since all of them do the same.
    """
    slowness = step.slowness or (1.0,) * step.devices
    slowness = tuple(sorted(set(slowness))) if alike else slowness
    times = np.array([group_us(step, plan, number, fused_us) for number in range(len(plan.groups))])
    devices, groups = len(slowness), len(plan.groups)
    own = groups + 1
    sent = _sent(step, plan, synchronization)
    stages = len(synchronization.stages)
    on_devices = devices * own
    sizes, counts = np.array(sent.sizes), np.array(plan.parts, np.int64)
    chunks = int(counts.sum())
    total = on_devices + chunks * stages

    duration, gap = np.empty(total), np.zeros(total)
    for device, factor in enumerate(slowness):
        first = device * own
        gap[first] = factor * (step.batches - 1) * times.sum()  # batches of which nothing is sent
        duration[first : first + groups] = factor * times
        duration[first + groups] = factor * step.update_us
    duration[on_devices:] = np.array(sent.part_us).T.reshape(-1) if chunks else ()
    lane = np.concatenate(
        [np.repeat(np.arange(devices), own), np.repeat(devices + np.arange(stages), chunks)]
    ).astype(np.int64)
    names, name = _names(step, plan, synchronization, counts, devices)
    first_chunk = np.concatenate([[0], np.cumsum(counts)[:-1]])
    tasks = Tasks(
        key=np.arange(total), name=name, layer=np.full(total, NOTHING), operator=np.full(total, NOTHING),
        kind=np.where(np.arange(total) < on_devices, TaskKind.KERNEL, TaskKind.COLLECTIVE).astype(np.int64),
        phase=_phases(step, plan, devices, chunks * stages), lane=lane,
        step=np.full(total, NOTHING), duration_us=duration, gap_us=gap,
        recorded_us=np.full(total, np.nan),
        size_bytes=np.concatenate(
            [np.full(on_devices, np.nan), np.tile(np.repeat(sizes / counts, counts), stages)]
        ),
        priority=np.zeros(total),
    )  # fmt: skip
    group_tasks = np.arange(devices)[:, None] * own + np.arange(groups)[None, :]
    updates = np.arange(devices) * own + groups
    edges = _edges(group_tasks, updates, np.array(sent.ready), on_devices, first_chunk, chunks, stages)
    lanes = (
        *(Lane(kind="stream", name=f"device {d}", device=d) for d in range(devices)),
        *(Lane(kind="channel", name=stage.name) for stage in synchronization.stages),
    )
    graph = TaskGraph(tasks=tasks, edges=edges, lanes=lanes, names=names, source="a planned step")
    last = on_devices + (stages - 1) * chunks + first_chunk + counts - 1
    return StepGraph(
        graph=graph, groups=group_tasks, updates=updates, first_sent=on_devices + first_chunk, last_sent=last
    )


def group_us(step: TrainingStep, plan: Plan, number: int, fused_us: FusedTime) -> float:
    """How long a group takes: as fused, or one computation after the other where that is not known."""
    first, end = plan.ranges_of_groups[number]
    members = step.computations[first:end]
    fused = fused_us(members) if len(members) > 1 else None
    return sum(one.duration_us for one in members) if fused is None else fused


@dataclass(frozen=True, kw_only=True)
class _Sent:
    """Of each bucket: its bytes, the group behind which it is complete; of each part, its times by stage."""

    sizes: list[float]
    ready: list[int]
    part_us: list[tuple[float, ...]]


def _sent(step: TrainingStep, plan: Plan, synchronization: Synchronization) -> _Sent:
    sizes: list[float] = []
    ready: list[int] = []
    part_us: list[tuple[float, ...]] = []
    for (first, end), parts in zip(plan.ranges_of_buckets, plan.parts, strict=True):
        producers = [n for n in range(first, end) if step.computations[n].gradient_bytes]
        sizes.append(sum(step.computations[n].gradient_bytes for n in producers))
        ready.append(int(np.searchsorted(plan.groups, producers[-1] if producers else end - 1, side="right")))
        part_us += [synchronization.part_us(sizes[-1], parts)] * parts
    return _Sent(sizes=sizes, ready=ready, part_us=part_us)


def _edges(
    groups: Ints, updates: Ints, ready: Ints, on_devices: int, first_chunk: Ints, chunks: int, stages: int
) -> Edges:
    """Tensors before their sending, a stage before the next one, the last sending before the updates."""
    sources = [groups[:, ready].reshape(-1)]
    targets = [np.tile(on_devices + first_chunk, len(groups))]
    within = on_devices + np.arange((stages - 1) * chunks)
    sources.append(within)
    targets.append(within + chunks)
    sources.append(np.full(len(updates), on_devices + stages * chunks - 1))
    targets.append(updates)
    source, target = np.concatenate(sources).astype(np.int64), np.concatenate(targets).astype(np.int64)
    return Edges(
        source=source, target=target, lag_us=np.zeros(len(source)),
        from_start=np.zeros(len(source), np.bool_), kind=np.full(len(source), EdgeKind.CHANNEL, np.int64),
    )  # fmt: skip


def _names(
    step: TrainingStep, plan: Plan, synchronization: Synchronization, counts: Ints, devices: int
) -> tuple[tuple[str, ...], Ints]:
    groups = [
        step.computations[first].name
        if end == first + 1
        else f"{step.computations[first].name} .. {step.computations[end - 1].name}"
        for first, end in plan.ranges_of_groups
    ]
    buckets = [
        f"{stage.name} of bucket {number}"
        for stage in synchronization.stages
        for number in range(len(plan.buckets))
    ]
    own = np.tile(np.arange(len(groups) + 1), devices)
    sent = len(groups) + 1 + np.repeat(np.arange(len(buckets)), np.tile(counts, len(synchronization.stages)))
    return (*groups, "update", *buckets), np.concatenate([own, sent]).astype(np.int64)


def _phases(step: TrainingStep, plan: Plan, devices: int, sent: int) -> Ints:
    own = [
        Phase.FORWARD if step.computations[first].part is Part.FORWARD else Phase.BACKWARD
        for first, _ in plan.ranges_of_groups
    ]
    phases: Sequence[int] = [*own, Phase.OPTIMIZER] * devices + [Phase.BACKWARD] * sent
    return np.array(phases, np.int64)
