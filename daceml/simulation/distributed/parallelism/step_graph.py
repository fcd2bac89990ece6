"""A step of training with data, tensor and pipeline parallelism, as a task graph of all ranks, or of a few.

Each rank has a stream, and a thread where launches take time; the thread waits for the stream before it reads
a batch (copied from pageable memory), receives (Megatron-LM, p2p_communication) or asks for a result.
Each group of ranks has a channel, on which a collective is one task: it begins when all members have come to
it, and all go on when it ends. Sends between stages have a channel for each rank and direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from daceml.errors import ParallelPlanError
from daceml.simulation.distributed.parallelism.block_times import BlockTimes, HostTimes
from daceml.simulation.distributed.parallelism.communication import Communication
from daceml.simulation.distributed.parallelism.graph_parts import Columns, Links, edges_of, tasks_of
from daceml.simulation.distributed.parallelism.layer_work import Share
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.schedules import Slot
from daceml.simulation.distributed.parallelism.stage_program import (
    Detail,
    StageProgram,
    stage_programs,
)
from daceml.simulation.distributed.parallelism.transformer import Transformer
from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.collectives import Collective
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WhichRanks = Literal["all", "representatives"]
Ranks = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """What everything takes.

    Attributes:
        blocks: on a device.
        communication: between them.
        host: of each rank; None leaves threads out, as if no launch was ever late.
    """

    blocks: BlockTimes
    communication: Communication
    host: HostTimes | None = None


def step_graph(
    model: Transformer,
    plan: ParallelPlan,
    costs: StepCosts,
    *,
    ranks: WhichRanks = "representatives",
    detail: Detail = "blocks",
) -> TaskGraph:
    """One step.

    Args:
        ranks: all, or of each stage the first one: the others do the same at the same time, so that their
            collectives last as long as that of the whole group, and the replay takes as long.
        detail: a task for each block between two all-reduces, or one for each operator.
    Raises:
        ParallelPlanError: plan, model and topology do not fit together; or representatives are asked for, and
            ranks of a stage communicate on other links than others.
        EstimationError: nobody knows how long an operator takes.
    """
    return _Assembly(model, plan, costs, ranks, detail).graph()


class _Assembly:
    """The parts of a graph, gathered stage by stage."""

    def __init__(
        self, model: Transformer, plan: ParallelPlan, costs: StepCosts, ranks: WhichRanks, detail: Detail
    ) -> None:
        self.model, self.plan, self.costs = model, plan, costs
        if ranks not in get_args(WhichRanks):
            raise ParallelPlanError(f"ranks={ranks!r}", fix="give one of " + ", ".join(get_args(WhichRanks)))
        costs.communication.require(plan.ranks)
        self.programs = stage_programs(model, plan, costs.blocks, detail)
        share = Share(model=model, micro_batch=plan.micro_batch, tensor=plan.tensor)
        self.boundary_bytes = share.boundary_bytes
        self.whole = ranks == "all"
        self.data, self.tensor = (plan.data, plan.tensor) if self.whole else (1, 1)
        self.copies = self.data * self.tensor
        self.lanes: list[Lane] = []
        self.names: dict[str, int] = {}
        self.columns: list[Columns] = []
        self.links: list[Links] = []
        self.count = 0
        # [stages] of [data, tensor]: the first stream task of each rank; and of a slot, what it ends with
        self.streams: list[Ints] = []
        self.threads: list[Ints] = []
        self.ends: list[dict[Slot, Ints]] = []

    def graph(self) -> TaskGraph:
        for stage, program in enumerate(self.programs):
            self._compute(stage, program)
            self._reduce_in_layers(stage, program)
        for stage, program in enumerate(self.programs):
            self._send(stage, program)
        for stage, program in enumerate(self.programs):
            self._reduce_gradients(stage, program)
        self._reduce_tied_embeddings()
        return TaskGraph(
            tasks=tasks_of(self.columns),
            edges=edges_of(self.links),
            lanes=tuple(self.lanes),
            names=tuple(self.names),
            step_names=("step 0",),
            source=self.plan.text,
            notes=() if self.costs.host else ("no launch is late: the host's part is left out",),
        )

    def _named(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def _put(self, columns: Columns) -> Ints:
        """Tasks behind all others; their numbers."""
        self.columns.append(columns)
        self.count += len(columns)
        return np.arange(self.count - len(columns), self.count)

    def _join(
        self, source: Ints, target: Ints, lag_us: Floats | float = 0.0, *, begun: bool = False,
        kind: EdgeKind = EdgeKind.CHANNEL,
    ) -> None:  # fmt: skip
        self.links.append(Links.of(source, target, lag_us, from_start=begun, kind=kind))

    def _rank(self, stage: int, copy: int) -> int:
        data, tensor = divmod(copy, self.tensor)
        return self.plan.rank(data=data, tensor=tensor, stage=stage)

    def _duration_us(self, collective: Collective, size_bytes: float, groups: Sequence[Ranks]) -> Floats:
        """[copies' groups] of a collective that all groups of a stage begin together."""
        duration_us = self.costs.communication.durations_us(collective, size_bytes, groups)
        if self.whole:
            return duration_us
        if np.ptp(duration_us) > 0:
            raise ParallelPlanError(
                f"groups of a stage take {duration_us.min():.1f} to {duration_us.max():.1f} us for the same",
                where=self.plan.text,
                why="some stay inside a node and others do not, so that no rank stands for the others",
                fix='simulate all ranks: step_graph(..., ranks="all")',
            )
        return duration_us[:1]

    def _places(self) -> Iterator[tuple[int, int]]:
        """(data, tensor) of each rank of a stage of the plan."""
        return product(range(self.plan.data), range(self.plan.tensor))

    def _pairs(self, stage: int, there: int) -> list[Ranks]:
        """Each rank of a stage, and the one at its place in another stage."""
        rank = self.plan.rank
        return [
            (rank(data=d, tensor=t, stage=stage), rank(data=d, tensor=t, stage=there))
            for d, t in self._places()
        ]

    def _compute(self, stage: int, program: StageProgram) -> None:
        rows, count = program.rows, len(program)
        ranks = [self._rank(stage, copy) for copy in range(self.copies)]
        first_lane = len(self.lanes)
        self.lanes += [Lane(kind="stream", name=f"rank {rank}", device=rank) for rank in ranks]
        local = {
            "name": np.array([self._named(row.name) for row in rows], np.int64)[program.row],
            "layer": np.array([self._named(row.layer or "model") for row in rows], np.int64)[program.row],
            "phase": np.array([row.phase for row in rows], np.int64)[program.row],
        }
        every = {name: np.tile(column, self.copies) for name, column in local.items()}
        duration_us = program.column([row.duration_us for row in rows])
        stream = self._put(
            Columns.of(
                kind=TaskKind.KERNEL,
                lane=np.repeat(np.arange(first_lane, first_lane + self.copies), count),
                duration_us=np.tile(duration_us, self.copies),
                name=every["name"],
                layer=every["layer"],
                phase=every["phase"],
            )
        )
        self.streams.append(stream[::count].reshape(self.data, self.tensor))
        host = self.costs.host
        if host is None:
            self.threads.append(np.zeros((0, 0), np.int64))
            return
        first_lane = len(self.lanes)
        self.lanes += [Lane(kind="cpu", name=f"thread of rank {rank}", device=rank) for rank in ranks]
        launching_us = np.tile(program.column([row.launches * host.call_us for row in rows]), self.copies)
        thread = self._put(
            Columns.of(
                kind=TaskKind.CALL,
                lane=np.repeat(np.arange(first_lane, first_lane + self.copies), count),
                duration_us=launching_us,
                name=np.full(len(stream), self._named("launches"), np.int64),
                layer=every["layer"],
                phase=every["phase"],
            )
        )
        self.threads.append(thread[::count].reshape(self.data, self.tensor))
        # The first kernel of a block follows its launch, and so does the last one, which ends with the block.
        self._join(thread, stream, host.latency_us, begun=True, kind=EdgeKind.LAUNCH)
        waits = np.flatnonzero(program.column([row.waits for row in rows])[1:]) + 1
        base = np.arange(self.copies)[:, None] * count + waits
        self._join(stream[base - 1].ravel(), thread[base].ravel(), kind=EdgeKind.SYNC)
        lag_us = host.latency_us - np.minimum(np.tile(duration_us, self.copies), launching_us)
        self._join(thread, stream, lag_us, kind=EdgeKind.LAUNCH)

    def _reduce_in_layers(self, stage: int, program: StageProgram) -> None:
        """All-reduces of activations, on which every tensor-parallel rank waits."""
        reduced = program.column([row.reduced_bytes for row in program.rows])
        places = np.flatnonzero(reduced)
        base = self.streams[stage]
        ends = {visit.slot: base + visit.last for visit in program.visits}
        self.ends.append(ends)
        if not len(places):
            return
        groups = [self.plan.tensor_group(data=data, stage=stage) for data in range(self.plan.data)]
        sizes, of_size = np.unique(reduced[places], return_inverse=True)
        duration_us = self._all_reduces_us(sizes, groups)[:, of_size]
        by_place = np.full(len(program) + 1, -1, np.int64)
        by_place[places] = np.arange(len(places))
        tasks = np.zeros((self.data, len(places)), np.int64)
        for data in range(self.data):
            layer = np.array([self._named(row.layer or "model") for row in program.rows], np.int64)
            phase = np.array([row.phase for row in program.rows], np.int64)
            tasks[data] = self._put(
                Columns.of(
                    kind=TaskKind.COLLECTIVE,
                    name=np.full(len(places), self._named("all-reduce of activations"), np.int64),
                    layer=layer[program.row][places],
                    phase=phase[program.row][places],
                    lane=np.full(len(places), len(self.lanes), np.int64),
                    duration_us=duration_us[data],
                    size_bytes=reduced[places],
                )
            )
            self.lanes.append(Lane(kind="channel", name=f"tensor group {data} of stage {stage}"))
        members = base[:, :, None] + places
        joined = np.broadcast_to(tasks[:, None, :], members.shape)
        self._join(members.ravel(), joined.ravel())
        self._join(joined.ravel(), members.ravel() + 1)
        for visit in program.visits:
            if by_place[visit.last] >= 0:
                ends[visit.slot] = np.broadcast_to(tasks[:, by_place[visit.last], None], base.shape)

    def _all_reduces_us(self, sizes: Floats, groups: Sequence[Ranks]) -> Floats:
        """[copies' groups, sizes]."""
        return np.stack(
            [self._duration_us(Collective.ALL_REDUCE, size, groups) for size in sizes.tolist()], axis=1
        )

    def _next(self, stage: int, slot: Slot) -> tuple[int, Slot] | None:
        """Where a micro-batch goes from here; nowhere from either end."""
        step = 1 if slot.forward else -1
        chunk, there = divmod(slot.chunk * self.plan.pipeline + stage + step, self.plan.pipeline)
        if not 0 <= chunk < self.plan.chunks:
            return None
        return there, Slot(micro_batch=slot.micro_batch, forward=slot.forward, chunk=chunk)

    def _send(self, stage: int, program: StageProgram) -> None:
        """Activations to the next stage, gradients to the one before."""
        size = self.boundary_bytes
        for forward in (True, False):
            routes = [
                (visit.slot, *there)
                for visit in program.visits
                if visit.slot.forward is forward and (there := self._next(stage, visit.slot)) is not None
            ]
            if not routes:
                continue
            takes = {
                there: self._duration_us(Collective.SEND, size, self._pairs(stage, there))
                for there in {one[1] for one in routes}
            }
            duration_us = np.stack([takes[there] for _, there, _ in routes], axis=1)
            firsts = [{v.slot: v.first for v in other.visits} for other in self.programs]
            source = np.stack([self.ends[stage][slot].ravel() for slot, _, _ in routes], axis=1)
            place = np.array([firsts[there][slot] for _, there, slot in routes])
            targets = np.stack([self.streams[there].ravel() for _, there, _ in routes], axis=1) + place
            what = "activations" if forward else "gradients"
            first_lane = len(self.lanes)
            side = "next" if forward else "previous"
            self.lanes += [
                Lane(kind="channel", name=f"rank {self._rank(stage, copy)} to {side} stage")
                for copy in range(self.copies)
            ]
            sends = self._put(
                Columns.of(
                    kind=TaskKind.COLLECTIVE,
                    name=np.full(source.size, self._named(f"send of {what}"), np.int64),
                    phase=np.full(source.size, Phase.FORWARD if forward else Phase.BACKWARD, np.int64),
                    lane=np.repeat(np.arange(first_lane, len(self.lanes)), len(routes)),
                    duration_us=duration_us.ravel(),
                    size_bytes=np.full(source.size, size),
                )
            )
            self._join(source.ravel(), sends)
            self._join(sends, targets.ravel())
            if self.costs.host is not None:
                threads = np.stack([self.threads[there].ravel() for _, there, _ in routes], axis=1) + place
                self._join(sends, threads.ravel(), kind=EdgeKind.SYNC)

    def _reduce_gradients(self, stage: int, program: StageProgram) -> None:
        """Over replicas, bucket by bucket; the optimizer waits for all."""
        if not program.buckets:
            return
        groups = [self.plan.data_group(tensor=tensor, stage=stage) for tensor in range(self.plan.tensor)]
        base = self.streams[stage]
        places = np.array([bucket.after for bucket in program.buckets], np.int64)
        sizes = np.array([bucket.size_bytes for bucket in program.buckets])
        duration_us = self._all_reduces_us(sizes, groups)
        for tensor in range(self.tensor):
            tasks = self._put(
                Columns.of(
                    kind=TaskKind.COLLECTIVE,
                    name=np.full(len(places), self._named("all-reduce of gradients"), np.int64),
                    phase=np.full(len(places), Phase.BACKWARD, np.int64),
                    lane=np.full(len(places), len(self.lanes), np.int64),
                    duration_us=duration_us[tensor],
                    size_bytes=sizes,
                )
            )
            self.lanes.append(Lane(kind="channel", name=f"data group {tensor} of stage {stage}"))
            members = base[:, tensor, None] + places
            self._join(members.ravel(), np.broadcast_to(tasks, members.shape).ravel())
            update = base[:, tensor] + program.update
            self._join(np.full(len(update), tasks[-1]), update)

    def _reduce_tied_embeddings(self) -> None:
        """The head has the weights of the embedding: both ends of the pipeline add up their gradients."""
        first, last = self.programs[0], self.programs[-1]
        if not first.tied_bytes:
            return
        duration_us = self._duration_us(
            Collective.ALL_REDUCE, first.tied_bytes, self._pairs(0, self.plan.pipeline - 1)
        )
        first_lane = len(self.lanes)
        self.lanes += [Lane(kind="channel", name=f"ends of pipeline {copy}") for copy in range(self.copies)]
        tasks = self._put(
            Columns.of(
                kind=TaskKind.COLLECTIVE,
                name=np.full(self.copies, self._named("all-reduce of tied embeddings"), np.int64),
                phase=np.full(self.copies, Phase.BACKWARD, np.int64),
                lane=np.arange(first_lane, first_lane + self.copies),
                duration_us=duration_us,
                size_bytes=np.full(self.copies, first.tied_bytes),
            )
        )
        for program, base in ((first, self.streams[0]), (last, self.streams[-1])):
            update = base.ravel() + program.update
            self._join(update - 1, tasks)
            self._join(tasks, update)
