"""The numbers that describe operations of one operator, and what tells apart those that no number relates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EstimationError
from daceml.operations.database.records import Operation

Mode = tuple[Hashable, ...]


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """Operations of one mode, as columns.

    Attributes:
        names: "0.1" is the second size of the first operand; other names are attributes', "stride.0" the
            first number of one.
        values: [operations, names].
        sizes: [names] whether it is a size of an operand: more of it is more work.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    sizes: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)

    def varying(self) -> NDArray[np.bool_]:
        """[names] those that are not the same in all operations."""
        return (self.values != self.values[:1]).any(axis=0)


def mode(operation: Operation) -> Mode:
    """What no number relates: operations that differ in it are estimated by models of their own.

    These are the operator and its direction, ranks, types and layouts of operands, and attributes that are
    words or choices. Source: Tianshu calls parameters that select another computation modes.
    """
    operands = tuple(
        (len(one.shape), one.dtype, one.layout if isinstance(one.layout, str) else "strided")
        for one in operation.operands
    )
    choices = tuple(
        (name, value if _is_choice(value) else _count(value))
        for name, value in sorted(operation.attributes.items())
    )
    return (operation.operator, operation.direction, operation.kernel, operands, choices)


def dimensions(operations: Sequence[Operation]) -> Dimensions:
    """Columns of operations that have one mode.

    Raises:
        EstimationError: there is none, or they have several modes.
    """
    modes = {mode(operation) for operation in operations}
    if len(modes) != 1:
        raise EstimationError(
            "no operation is given" if not modes else "these operations are of several kinds",
            why="" if not modes else f"{len(modes)} differ in operator, types, ranks, layouts or choices",
            fix="group them by daceml.operations.models.dimensions.mode",
        )
    first = operations[0]
    names = [f"{i}.{axis}" for i, one in enumerate(first.operands) for axis in range(len(one.shape))]
    sizes = len(names)
    for name, value in sorted(first.attributes.items()):
        if not _is_choice(value):
            names += [name] if _count(value) is None else [f"{name}.{i}" for i in range(_count(value) or 0)]
    values = np.array([_numbers(one) for one in operations], np.float64).reshape(len(operations), len(names))
    return Dimensions(names=tuple(names), values=values, sizes=np.arange(len(names)) < sizes)


def _numbers(operation: Operation) -> list[float]:
    found = [float(size) for one in operation.operands for size in one.shape]
    for _, value in sorted(operation.attributes.items()):
        if not _is_choice(value):
            found += [float(v) for v in (value if isinstance(value, tuple) else (value,))]
    return found


def _is_choice(value: object) -> bool:
    """A word or a truth; numbers are parameters."""
    first = value[0] if isinstance(value, tuple) and value else value
    return isinstance(first, str | bool)


def _count(value: object) -> int | None:
    return len(value) if isinstance(value, tuple) else None
