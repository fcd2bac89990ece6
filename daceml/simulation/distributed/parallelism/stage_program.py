"""What one stage of a pipeline runs in a step, in order, and where it meets other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daceml.operations.database.records import Operand
from daceml.simulation.distributed.parallelism.block_times import BlockTimes
from daceml.simulation.distributed.parallelism.layer_work import Block, Share, launches_of, optimizer
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.schedules import Slot, schedule_of
from daceml.simulation.distributed.parallelism.transformer import Transformer
from daceml.simulation.task import Phase

Detail = Literal["blocks", "operators"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Row(NamedTuple):
    """A task: what it is called, its layer, its phase, its time, launches, bytes to reduce behind it.

    `waits`: the host waits for its device before, as for a batch, what another stage sends, or a result.
    """

    name: str
    layer: str
    phase: Phase
    duration_us: float
    launches: int
    reduced_bytes: float
    waits: bool = False


@dataclass(frozen=True, kw_only=True)
class Visit:
    """The tasks `first` to `last` of a stage, which work on one slot."""

    slot: Slot
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Gradients that are reduced at once over replicas, or between the two ends of the pipeline.

    Attributes:
        after: the task that makes the last of them.
    """

    after: int
    size_bytes: float


@dataclass(frozen=True, kw_only=True, eq=False)
class StageProgram:
    """Of one rank; all ranks of a stage have the same.

    Attributes:
        rows: those that differ.
        row: [n] which of them each task is.
        visits: in order, of the slots of the schedule.
        buckets: that are reduced over replicas, in order.
        tied_bytes: of the embedding's gradients, which the first and last stage have to add up; 0 elsewhere.
        update: the first task of the optimizer.
    """

    rows: tuple[Row, ...]
    row: Ints
    visits: tuple[Visit, ...]
    buckets: tuple[Gradients, ...]
    tied_bytes: float
    update: int

    def __len__(self) -> int:
        return len(self.row)

    def column(self, values: Sequence[float]) -> Floats:
        """[n] of each task what each of the rows has."""
        return np.array(values, np.float64)[self.row]


def stage_programs(
    model: Transformer, plan: ParallelPlan, times: BlockTimes, detail: Detail = "blocks"
) -> tuple[StageProgram, ...]:
    """[stages] of one step.

    Args:
        detail: a task for each block between two all-reduces, or one for each operator.
    Raises:
        ParallelPlanError: the plan does not divide the model.
        EstimationError: nobody knows how long an operator takes.
    """
    return tuple(
        _Stage(model, plan, times, detail, stage).program(slots)
        for stage, slots in enumerate(schedule_of(plan))
    )


class _Stage:
    """Rows of a stage, made once for each chunk and direction."""

    def __init__(
        self, model: Transformer, plan: ParallelPlan, times: BlockTimes, detail: Detail, stage: int
    ) -> None:
        self.model, self.plan, self.times, self.detail, self.stage = model, plan, times, detail, stage
        self.share = Share(model=model, micro_batch=plan.micro_batch, tensor=plan.tensor)
        self.rows: dict[Row, int] = {}
        self.width = Operand(shape=(), dtype=model.dtype).size_bytes

    def program(self, slots: Sequence[Slot]) -> StageProgram:
        way = {
            (chunk, forward): self._numbers(self._with_sends(chunk, forward=forward))
            for chunk in range(self.plan.chunks)
            for forward in (True, False)
        }
        parts = [way[slot.chunk, slot.forward] for slot in slots]
        ends = np.cumsum([len(part) for part in parts]).tolist()
        visits = tuple(
            Visit(slot=slot, first=end - len(part), last=end - 1)
            for slot, part, end in zip(slots, parts, ends, strict=True)
        )
        update = self._numbers(
            self._of_block(optimizer(self._parameters, self.model.dtype), "", Phase.OPTIMIZER)
        )
        tied = self.plan.pipeline > 1 and (self._embeds(0) or self._answers(self.plan.chunks - 1))
        return StageProgram(
            row=np.concatenate([*parts, update]),
            rows=tuple(self.rows),
            visits=visits,
            buckets=tuple(self._buckets(visits)),
            tied_bytes=float(self.model.embedding_parameters(self.plan.tensor) * self.width) if tied else 0.0,
            update=ends[-1],
        )

    def _with_sends(self, chunk: int, *, forward: bool) -> Iterator[Row]:
        """A chunk's work; the host launches what it receives before, and what it sends behind."""
        embeds, answers = self._embeds(chunk), self._answers(chunk)
        receives, sends = not (embeds if forward else answers), not (answers if forward else embeds)
        rows = list(self._forward(chunk) if forward else self._backward(chunk))
        reads = forward and (embeds or answers)
        rows[0] = rows[0]._replace(launches=rows[0].launches + receives, waits=reads or receives)
        rows[-1] = rows[-1]._replace(launches=rows[-1].launches + sends)
        yield from rows

    def _numbers(self, rows: Iterator[Row]) -> Ints:
        return np.array([self.rows.setdefault(row, len(self.rows)) for row in rows], np.int64)

    def _embeds(self, chunk: int) -> bool:
        return self.stage == 0 and chunk == 0

    def _answers(self, chunk: int) -> bool:
        return self.stage == self.plan.pipeline - 1 and chunk == self.plan.chunks - 1

    def _layers(self, chunk: int) -> range:
        return self.plan.layers_of(self.model.layers, stage=self.stage, chunk=chunk)

    def _forward(self, chunk: int) -> Iterator[Row]:
        if self._embeds(chunk):
            yield from self._of_block(self.share.embedding_forward(), "embedding", Phase.FORWARD)
        for layer in self._layers(chunk):
            for block in self.share.layer_forward():
                yield from self._of_block(block, f"layers.{layer}", Phase.FORWARD)
        if self._answers(chunk):
            for block in self.share.head_forward(batch=not self._embeds(0)):
                yield from self._of_block(block, "head", Phase.FORWARD)

    def _backward(self, chunk: int) -> Iterator[Row]:
        if self._answers(chunk):
            yield from self._of_block(self.share.head_backward(), "head", Phase.BACKWARD)
        for layer in reversed(self._layers(chunk)):
            yield from self._layer_backward(layer)
        if self._embeds(chunk):
            yield from self._of_block(self.share.embedding_backward(), "embedding", Phase.BACKWARD)

    def _layer_backward(self, layer: int) -> Iterator[Row]:
        again = self.share.layer_forward() if self.plan.recomputation == "layers" else ()
        for block in again:
            yield from self._of_block(block, f"layers.{layer}", Phase.BACKWARD, again=True)
        for block in self.share.layer_backward():
            yield from self._of_block(block, f"layers.{layer}", Phase.BACKWARD)

    def _of_block(self, block: Block, layer: str, phase: Phase, *, again: bool = False) -> Iterator[Row]:
        said = "recomputation" if again else phase.name.lower()
        if self.detail == "blocks":
            name = f"{block.name} {said}" if block.name != said else said
            duration_us = self.times.block_us(block)
            yield Row(name, layer, phase, duration_us, block.launches, block.reduced_bytes, block.waits)
            return
        for place, operation in enumerate(block.operations, start=1):
            reduced = block.reduced_bytes if place == len(block.operations) else 0.0
            launches = launches_of(operation) + (reduced > 0) + (block.small if place == 1 else 0)
            duration_us, waits = self.times.operator_us(operation), block.waits and place == 1
            yield Row(operation.operator, layer, phase, duration_us, launches, reduced, waits)

    @property
    def _parameters(self) -> int:
        tensor, chunks = self.plan.tensor, range(self.plan.chunks)
        layers = sum(len(self._layers(chunk)) for chunk in chunks)
        total = layers * self.model.layer_parameters(tensor)
        if any(map(self._embeds, chunks)):
            total += self.model.embedding_parameters(tensor) + self.model.position_parameters()
        elif any(map(self._answers, chunks)):
            total += self.model.embedding_parameters(tensor)
        return total

    def _buckets(self, visits: Sequence[Visit]) -> Iterator[Gradients]:
        """Filled from the last backward of each chunk on, as layers finish; what is left goes at the end."""
        if self.plan.data == 1:
            return
        last_backward = {visit.slot.chunk: visit for visit in visits if not visit.slot.forward}
        waiting = after = 0
        for visit in sorted(last_backward.values(), key=lambda visit: visit.first):
            for parameters, task in self._finished(visit):
                waiting, after = waiting + parameters * self.width, task
                if self.plan.bucket_bytes is not None and waiting >= self.plan.bucket_bytes:
                    yield Gradients(after=after, size_bytes=float(waiting))
                    waiting = 0
        if waiting:
            yield Gradients(after=after, size_bytes=float(waiting))

    def _finished(self, visit: Visit) -> Iterator[tuple[int, int]]:
        """Parameters whose gradients a backward finishes, and the task that does so."""
        tensor, chunk = self.plan.tensor, visit.slot.chunk
        of_layer, task = len(list(self._layer_backward(0))), visit.first - 1
        if self._answers(chunk):
            task += len(list(self._of_block(self.share.head_backward(), "head", Phase.BACKWARD)))
            if self.plan.pipeline > 1:
                yield self.model.embedding_parameters(tensor), task
        for _ in self._layers(chunk):
            task += of_layer
            yield self.model.layer_parameters(tensor), task
        if self._embeds(chunk):
            yield self.model.embedding_parameters(tensor) + self.model.position_parameters(), visit.last
