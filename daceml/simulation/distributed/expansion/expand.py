"""Put the sends and receives of collectives in their places: a graph in, a graph out.

Each device has a link out and a link in to the others of its node, each node a link out and one in to other
nodes, which its devices share. A link runs what is ready first; a receive begins a latency after its send at
the earliest, both last as long as the bytes take, and a send waits for no room where it goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from daceml.errors import ExpansionError
from daceml.simulation.distributed.expansion.transfers import Transfer, TransferPhase
from daceml.simulation.distributed.parallelism.graph_parts import Columns, tasks_of
from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.network.links import Link
from daceml.simulation.network.topology import Topology
from daceml.simulation.task import EdgeKind, Lane, TaskKind

Ints = NDArray[np.int64]
Row = tuple[int, int, float, bool, EdgeKind]
Wait = tuple[int, float, bool]  # for a task: behind its end, or its start, by a lag


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """A collective of a graph that becomes sends and receives.

    Attributes:
        task: that stands for it on the channel of its group. What it waits for on a rank's lanes, that rank
            waits for with its first sends; what waits for it there, waits for what that rank receives.
        phases: of transfers between devices, which are ranks.
    """

    task: int
    phases: tuple[TransferPhase, ...]


def expand(graph: TaskGraph, expansions: Sequence[Expansion], topology: Topology) -> TaskGraph:
    """With links as lanes; the task of each collective stays as the moment at which all are done.

    Args:
        graph: whose lanes of devices name their device, and a collective of several is one task.
        topology: of the devices that transfers name.
    Raises:
        ExpansionError: a task that is no collective or is expanded twice, a device that is not there.
    """
    tasks = [one.task for one in expansions]
    for task in tasks:
        if graph.tasks.kind[task] != TaskKind.COLLECTIVE or tasks.count(task) > 1:
            why = "another expansion has it" if tasks.count(task) > 1 else "it is no collective"
            raise ExpansionError(
                f"{graph.name_of(task)!r} cannot be expanded",
                where=graph.source,
                why=why,
                fix="give each collective once, by its place in the graph",
            )
    made = _Expanding(graph, topology)
    for one in expansions:
        made.put(one)
    return made.graph_of()


@dataclass
class _Expanding:
    """What is put in, as lists."""

    graph: TaskGraph
    topology: Topology
    lanes: dict[str, int] = field(default_factory=dict[str, int])
    lane: list[int] = field(default_factory=list[int])
    name: list[int] = field(default_factory=list[int])
    like: list[int] = field(default_factory=list[int])
    duration_us: list[float] = field(default_factory=list[float])
    size_bytes: list[float] = field(default_factory=list[float])
    earliest_us: dict[int, float] = field(default_factory=dict[int, float])
    edges: list[Row] = field(default_factory=list[Row])
    names: dict[str, int] = field(default_factory=dict[str, int])
    gone: set[int] = field(default_factory=set[int])
    moments: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.lanes = {lane.name: number for number, lane in enumerate(self.graph.lanes)}
        self.names = {name: number for number, name in enumerate(self.graph.names)}
        edges = self.graph.edges
        self.edges_in: dict[int, list[int]] = {}
        self.edges_out: dict[int, list[int]] = {}
        collective = self.graph.tasks.kind == TaskKind.COLLECTIVE
        for edge in np.flatnonzero(collective[edges.target]).tolist():
            self.edges_in.setdefault(int(edges.target[edge]), []).append(edge)
        for edge in np.flatnonzero(collective[edges.source]).tolist():
            self.edges_out.setdefault(int(edges.source[edge]), []).append(edge)

    def put(self, one: Expansion) -> None:
        """One collective: phase behind phase, device by device."""
        devices = {end for phase in one.phases for t in phase.transfers for end in (t.source, t.target)}
        ready = {device: self._arrivals(one.task, device) for device in devices}
        for phase in one.phases:
            ready = self._phase(one.task, phase, ready)
        self.moments.append(one.task)
        for waits in ready.values():
            self._wait(one.task, waits)
        for edge in self.edges_out.get(one.task, ()):
            target = int(self.graph.edges.target[edge])
            device = self.graph.lanes[int(self.graph.tasks.lane[target])].device
            if device in ready:
                self.gone.add(edge)
                self._wait(target, ready[device], lag_us=float(self.graph.edges.lag_us[edge]))

    def _wait(self, task: int, waits: Sequence[Wait], lag_us: float = 0.0) -> None:
        kind = EdgeKind.CHANNEL
        self.edges += [(source, task, own_us + lag_us, begun, kind) for source, own_us, begun in waits]

    def _arrivals(self, task: int, device: int) -> list[Wait]:
        """What a device waits for before it takes part; the channel's own order holds for all."""
        graph = self.graph
        waits: list[Wait] = []
        for edge in self.edges_in.get(task, ()):
            source = int(graph.edges.source[edge])
            where = graph.lanes[int(graph.tasks.lane[source])].device
            if where is None or where == device:
                waits.append((source, float(graph.edges.lag_us[edge]), bool(graph.edges.from_start[edge])))
        before = int(graph.structure.before[task])
        if before != NOTHING:
            waits.append((before, float(graph.tasks.gap_us[task]), False))
        return waits

    def _phase(self, task: int, phase: TransferPhase, ready: dict[int, list[Wait]]) -> dict[int, list[Wait]]:
        overhead_us = self.topology.overhead_us * phase.way.overhead
        first = len(self.graph) + len(self.lane)
        got: dict[int, list[Wait]] = {}
        for number, transfer in enumerate(phase.transfers):
            send, receive = first + 2 * number, first + 2 * number + 1
            latency_us = self._link(task, phase, transfer)
            self._wait(receive, [(send, latency_us, True)])
            self._wait(send, [(first + 2 * one + 1, 0.0, False) for one in transfer.after])
            waits = ready.get(transfer.source, [])
            self._wait(send, waits, lag_us=overhead_us)
            if not transfer.after:
                self.earliest_us[send] = 0.0 if waits else overhead_us
            got.setdefault(transfer.target, []).append((receive, 0.0, False))
        # nobody is done before it has begun, whatever it receives
        return {device: [*waits, *got.get(device, ())] for device, waits in ready.items()}

    def _link(self, task: int, phase: TransferPhase, transfer: Transfer) -> float:
        """Puts a send and a receive on the lanes of a transfer's link; its latency."""
        each = self.topology.devices_per_node
        for device in (transfer.source, transfer.target):
            if not 0 <= device < self.topology.devices:
                raise ExpansionError(
                    f"device {device} is none of the {self.topology.devices} of the topology",
                    where=self.graph.source,
                    fix="give a topology with all devices that communicate",
                )
        ends = (transfer.source // each, transfer.target // each)
        inside = ends[0] == ends[1]
        link: Link | None = self.topology.inside if inside else self.topology.outside
        assert link is not None  # a topology of several nodes has one
        what, numbers = ("device", (transfer.source, transfer.target)) if inside else ("node", ends)
        duration_us = transfer.size_bytes / (link.bytes_per_s * phase.way.bandwidth) * 1e6
        named = self.graph.name_of(task)
        for side, number, does in (("out of", numbers[0], "send"), ("into", numbers[1], "receive")):
            lane = f"link {side} {what} {number}"
            self.lane.append(self.lanes.setdefault(lane, len(self.lanes)))
            text = f"{does} {transfer.source} to {transfer.target} of {named}"
            self.name.append(self.names.setdefault(text, len(self.names)))
            self.like.append(task)
            self.duration_us.append(duration_us)
            self.size_bytes.append(transfer.size_bytes)
        return link.latency_us * (phase.way.inside if inside else phase.way.outside)

    def graph_of(self) -> TaskGraph:
        """All of it as a graph."""
        graph, count = self.graph, len(self.lane)
        if not count:
            return graph
        like = np.array(self.like, np.int64)
        duration_us = graph.tasks.duration_us.copy()
        duration_us[self.moments] = 0.0
        kept = np.ones(len(graph.edges), np.bool_)
        kept[list(self.gone)] = False
        made = tasks_of([
            Columns.of(
                kind=TaskKind.COLLECTIVE,
                name=np.array(self.name, np.int64),
                layer=graph.tasks.layer[like],
                phase=graph.tasks.phase[like],
                lane=np.array(self.lane, np.int64),
                duration_us=np.array(self.duration_us),
                size_bytes=np.array(self.size_bytes),
            )
        ])  # fmt: skip
        gap_us = np.zeros(count)
        for task, earliest_us in self.earliest_us.items():
            gap_us[task - len(graph)] = earliest_us
        made = dataclasses.replace(
            made,
            key=np.arange(count) + int(graph.tasks.key.max()) + 1,
            step=graph.tasks.step[like],
            priority=graph.tasks.priority[like],
            gap_us=gap_us,
        )
        columns = {
            column.name: np.concatenate([getattr(graph.tasks, column.name), getattr(made, column.name)])
            for column in dataclasses.fields(Tasks)
        }
        columns["duration_us"][: len(graph)] = duration_us
        new = [
            Lane(kind="channel", name=name, ordered=False)
            for name, number in self.lanes.items()
            if number >= len(graph.lanes)
        ]
        return dataclasses.replace(
            graph,
            tasks=Tasks(**columns),
            edges=Edges.joined([graph.edges.taken(kept), Edges.of(self.edges)]),
            lanes=(*graph.lanes, *new),
            names=tuple(self.names),
        )
