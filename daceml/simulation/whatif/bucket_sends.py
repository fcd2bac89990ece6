"""Hang what sends buckets of gradients between who computes them and who needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daceml.simulation.engine.replay import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.edit import NewEdge, NewTask, with_tasks
from daceml.simulation.primitives.insert import usual_latency_us, usual_launch_us
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind
from daceml.simulation.whatif.backward_phases import BackwardPhase, backward_phases
from daceml.simulation.whatif.gradients import Bucket


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Part of a collective.

    Attributes:
        channel: name of the lane that it runs on.
    """

    name: str
    duration_us: float
    channel: str
    size_bytes: float


@dataclass(frozen=True, kw_only=True)
class Computation:
    """What a device, or the CPU where there is none, does to gradients before or after they are sent."""

    name: str
    duration_us: float


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How one bucket is sent: each part behind the one before it.

    Attributes:
        before: where the gradients were computed, right behind that.
        behind: on the same lane, when the backward phase is over.
    """

    transfers: tuple[Transfer, ...]
    before: tuple[Computation, ...] = ()
    behind: tuple[Computation, ...] = ()


def with_sends(
    graph: TaskGraph, buckets: Sequence[Bucket], sendings: Sequence[Sending], lanes: Sequence[Lane]
) -> TaskGraph:
    """The graph in which every backward phase sends its buckets, and what follows it waits for all of them.

    A bucket goes when the last gradient of its layers is computed; where none of them has work in the phase,
    when as large a share of the phase is over as it and the buckets before it have of all bytes.

    Args:
        sendings: of each bucket.
        lanes: new ones, which the transfers name.
    """
    draft = _Draft(graph, lanes)
    shares = np.cumsum([bucket.size_bytes for bucket in buckets])
    shares = shares / shares[-1]
    for phase in backward_phases(graph, simulate(graph)):
        last: list[int] = []
        for bucket, sending, share in zip(buckets, sendings, shares.tolist(), strict=True):
            released = phase.releasing(bucket.layers) or phase.at_share(graph, share)
            last.append(draft.send(phase, released, sending))
        for sending, sent in zip(sendings, last, strict=True):
            draft.receive(phase, sending, sent)
    return with_tasks(graph, draft.tasks, draft.edges, lanes=lanes)


class _Draft:
    """New tasks and edges of all steps, which enter the graph at once."""

    def __init__(self, graph: TaskGraph, lanes: Sequence[Lane]) -> None:
        self.graph = graph
        self.channels = {lane.name: len(graph.lanes) + number for number, lane in enumerate(lanes)}
        launch = graph.edges.kind == EdgeKind.LAUNCH
        self.launch_of = dict(
            zip(graph.edges.target[launch].tolist(), graph.edges.source[launch].tolist(), strict=True)
        )
        self.launch_us, self.latency_us = usual_launch_us(graph), usual_latency_us(graph)
        self.tasks: list[NewTask] = []
        self.edges: list[NewEdge] = []

    def send(self, phase: BackwardPhase, released: Sequence[int], sending: Sending) -> int:
        """All up to the last transfer, whose number it returns."""
        before = list(released)
        for computation in sending.before:
            before = [self._compute(computation, released[-1], before)]
        for transfer in sending.transfers:
            task = NewTask(
                name=transfer.name, kind=TaskKind.COLLECTIVE, lane=self.channels[transfer.channel],
                duration_us=transfer.duration_us, size_bytes=transfer.size_bytes, step=phase.step,
                phase=Phase.BACKWARD,
            )  # fmt: skip
            before = [self._add(task, before)]
        return before[0]

    def receive(self, phase: BackwardPhase, sending: Sending, sent: int) -> None:
        """All behind the last transfer, and the release of who waits."""
        before = sent
        anchor = self._end_of(phase)
        for computation in sending.behind:
            before = self._compute(computation, anchor, [before])
        for target in phase.waiting:
            self.edges.append((before, target, 0.0, False, EdgeKind.CHANNEL))

    def _end_of(self, phase: BackwardPhase) -> int:
        """The task of the lane that ends the phase behind which what waits for the buckets comes."""
        last = int(phase.tasks[-1])
        members = self.graph.lane_members(int(self.graph.tasks.lane[last]))
        waiting = [
            task for task in phase.waiting if self.graph.tasks.lane[task] == self.graph.tasks.lane[last]
        ]
        place = int(np.searchsorted(members, waiting[0])) if waiting else len(members)
        return int(members[place - 1])

    def _compute(self, computation: Computation, anchor: int, before: Sequence[int]) -> int:
        tasks = self.graph.tasks
        kind = TaskKind.KERNEL if self.graph.on_device()[anchor] else TaskKind.OPERATOR
        task = NewTask(
            name=computation.name, kind=kind, lane=int(tasks.lane[anchor]), after=anchor, like=anchor,
            duration_us=computation.duration_us, layer="",
        )  # fmt: skip
        new = self._add(task, before)
        launch = self.launch_of.get(anchor)
        if launch is not None:
            call = NewTask(
                name=f"launch of {computation.name}", kind=TaskKind.CALL, lane=int(tasks.lane[launch]),
                after=launch, like=launch, duration_us=self.launch_us, layer="",
            )  # fmt: skip
            called = self._add(call, [])
            self.edges.append((called, new, self.latency_us, True, EdgeKind.LAUNCH))
        return new

    def _add(self, task: NewTask, before: Sequence[int]) -> int:
        new = ~len(self.tasks)
        self.tasks.append(task)
        self.edges.extend((source, new, 0.0, False, EdgeKind.CHANNEL) for source in before)
        return new
