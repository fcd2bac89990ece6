"""A step whose loops a compiler has joined: what goes through memory between them does not any more.

Neighbours that are no products and no look-ups become one kernel as long as each reads what the ones before
have written: elements, rows and their statistics. Such a kernel reads what comes from outside once, and
writes what somebody reads behind it. So do daceml's fuse_subgraphs and TorchInductor, under more conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from daceml.devices.roofline import Work
from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.operator_class import OperatorClass, operator_class
from daceml.prediction.model_step import ModelStep, StepOperation

_JOINED: tuple[OperatorClass, ...] = ("elementwise", "normalization", "softmax", "reduction", "copy")


@dataclass
class _Group:
    """Operations that become one kernel, by their places in the step."""

    places: list[int] = field(default_factory=list[int])
    written: set[int] = field(default_factory=set[int])


def fused(step: ModelStep) -> ModelStep:
    """The step with its loops joined.

    Returns:
        the same step with fewer operations; one kernel stands where the last of its operations stood. A step
        whose operations do not say what they read, as one of an ONNX file, is given back as it is, with a
        note.
    """
    if not any(one.reads for one in step.operations):
        note = "no loops were joined: it is not known which operation reads what"
        return replace(step, notes=(*step.notes, note))
    places = range(len(step.operations))
    last_read = last_reads(step.operations)
    return replace(step, operations=tuple(kernels(step.operations, places, last_read)))


def last_reads(operations: Sequence[StepOperation]) -> dict[int, int]:
    """Number of a memory -> place of the operation that reads it last."""
    return {memory: place for place, one in enumerate(operations) for memory in one.reads}


def kernels(
    operations: Sequence[StepOperation], places: range, last_read: dict[int, int]
) -> Iterator[StepOperation]:
    """A stretch of a step with its loops joined; what is read behind it stays a result."""
    for group in _groups(operations, places):
        if len(group.places) == 1:
            yield operations[group.places[0]]
        else:
            yield _joined(operations, group, last_read)


def _groups(operations: Sequence[StepOperation], places: range) -> Iterator[_Group]:
    """All operations, in an order in which each kernel comes where its last operation was."""
    group = _Group()
    free: list[int] = []  # what only looks at memory joins nothing and ends nothing
    for place in places:
        one = operations[place]
        if not one.launches:
            free.append(place)
            group.written |= set(one.writes) if group.written & set(one.reads) else set()
            continue
        joins = _may_join(one) and bool(group.written & set(one.reads))
        phase = group.places and operations[group.places[-1]].phase != one.phase
        if group.places and (not joins or phase):
            yield group
            group = _Group()
        yield from (_Group(places=[at]) for at in free)
        free = []
        if _may_join(one):
            group.places.append(place)
            group.written |= set(one.writes)
        else:
            yield _Group(places=[place])
    if group.places:
        yield group
    yield from (_Group(places=[at]) for at in free)


def _may_join(one: StepOperation) -> bool:
    return one.work is not None and operator_class(one.operation.operator) in _JOINED


def _joined(operations: Sequence[StepOperation], group: _Group, last_read: dict[int, int]) -> StepOperation:
    members = [operations[place] for place in group.places]
    read: dict[int, Operand] = {}
    written: dict[int, Operand] = {}
    wrote: dict[int, int] = {}
    for place, one in zip(group.places, members, strict=True):
        wrote |= dict.fromkeys(one.writes, place)
        for memory, operand in zip(one.reads, one.operation.operands, strict=False):
            if memory not in written:
                read[memory] = max(read.get(memory, operand), operand, key=_bytes)
        written |= dict(zip(one.writes, one.results, strict=False))
    # what nobody reads after it was last written is a result, also what was written in place
    kept = {
        memory: operand
        for memory, operand in written.items()
        if (read_at := last_read.get(memory, -1)) > group.places[-1] or read_at <= wrote[memory]
    }
    moved = sum(map(_bytes, (*read.values(), *kept.values())))
    works = [one.work for one in members if one.work is not None]
    names = tuple(one.operation.operator for one in members)
    return replace(
        members[-1],
        operation=Operation(operator="fused", operands=tuple(read.values()), attributes={"operators": names}),
        results=tuple(kept.values()),
        work=Work(
            flops=sum(work.flops for work in works),
            bytes_moved=float(min(moved, sum(work.bytes_moved for work in works))),
            arithmetic=works[0].arithmetic,
        ),
        ready=tuple(name for one in members for name in one.ready),
        reads=tuple(read),
        writes=tuple(kept),
    )


def _bytes(operand: Operand) -> int:
    return operand.size_bytes
