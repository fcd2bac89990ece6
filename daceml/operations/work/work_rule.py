"""What is kept of an operator to say what a call of it does: its results, what it reads, what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, cast

from daceml.operations.database.records import Attribute, Operand, Operation

Results = Callable[[Operation], Sequence[Operand] | None]
Flops = Callable[[Operation, Sequence[Operand]], float | None]
Reads = Callable[[Operation, Sequence[Operand]], float]
Rules = Mapping[str, "WorkRule"]


def all_operands(operation: Operation, results: Sequence[Operand]) -> float:
    """Bytes of all operands, each once."""
    return sum(map(bytes_of, operation.operands))


def no_flops(operation: Operation, results: Sequence[Operand]) -> float:
    """Of what only moves data."""
    return 0.0


@dataclass(frozen=True, kw_only=True)
class WorkRule:
    """One operator.

    Attributes:
        results: what a call writes; None where sizes are not known from operands and attributes.
        reads: bytes that it reads.
        flops: a multiplication with its addition are two; None where sizes are not known.
        unit: what computes it: products of matrices in the type of the operands, all else in float32 (of
            narrower types, too: PyTorch's `opmath_t`).
        backward: flops of the gradient of all operands, over those of the call.
    """

    results: Results
    reads: Reads = all_operands
    flops: Flops = no_flops
    unit: Literal["matrix", "vector"] = "vector"
    backward: float = 2.0


def bytes_of(operand: Operand) -> float:
    """Bytes of the elements that lie in memory: those of a broadcast dimension are one."""
    if isinstance(operand.layout, str) or len(operand.layout) != len(operand.shape):
        return float(operand.size_bytes)
    apart = prod(n for n, stride in zip(operand.shape, operand.layout, strict=True) if stride != 0)
    return operand.size_bytes / max(operand.elements, 1) * apart


def like(operand: Operand, *, shape: Sequence[int] | None = None, dtype: str | None = None) -> Operand:
    """A contiguous tensor that takes after another."""
    return Operand(
        shape=tuple(operand.shape if shape is None else shape),
        dtype=operand.dtype if dtype is None else dtype,
    )


def as_first(operation: Operation) -> Sequence[Operand] | None:
    """One result like the first operand."""
    return [like(operation.operands[0])] if operation.operands else None


def per_result(flops: float) -> Flops:
    """So many for each element of the first result."""
    return lambda operation, results: flops * results[0].elements


def per_operand(flops: float) -> Flops:
    """So many for each element of the first operand."""
    return lambda operation, results: flops * operation.operands[0].elements


def integers(value: Attribute | None, count: int, default: int) -> tuple[int, ...]:
    """An attribute that is one number for all dimensions, one for each, or not given (or an empty list)."""
    if value is None or value == ():
        return (default,) * count
    if isinstance(value, tuple):
        given = tuple(int(one) for one in cast("tuple[int, ...]", value))
        return given * count if len(given) == 1 else given
    return (int(value),) * count if isinstance(value, int | float) else (default,) * count


def axes(value: Attribute | None, rank: int) -> tuple[int, ...]:
    """The dimensions that an attribute names, from 0; all where it names none."""
    if value is None or value == () or isinstance(value, str | bool):
        return tuple(range(rank))
    given = value if isinstance(value, tuple) else (value,)
    return tuple(int(one) % rank if rank else 0 for one in given)
