"""Arithmetic on shapes and indices: broadcasting, and reshapes as splits and merges of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import sympy
from dace import symbolic

from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar
from daceml.sdfg.sizes import product, size

Position = Index | Scalar
Shape = tuple[Index, ...]


def same(a: Index, b: Index) -> bool:
    """Whether two sizes are certainly equal; symbols are compared by name."""
    return bool(a == b) or (not (isinstance(a, int) and isinstance(b, int)) and str(a) == str(b))


def as_shape(values: Sequence[Any]) -> Shape:
    """Sizes as plain ints where they are."""
    return tuple(size(v) for v in values)


def axis_of(axis: int, rank: int) -> int:
    """A possibly negative axis, from 0."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise Refused(f"axis {axis} is outside a tensor of rank {rank}")
    return int(axis) % max(rank, 1)


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted axes from 0; None is all."""
    if axes is None:
        return tuple(range(rank))
    if isinstance(axes, int | np.integer):
        axes = (axes,)
    if rank == 0:  # torch lets axis 0 and -1 of a scalar stand for the scalar itself
        return tuple(a for a in axes if axis_of(int(a), rank) != 0)
    return tuple(sorted({axis_of(int(a), rank) for a in axes}))


def broadcast_shapes(shapes: Sequence[Shape], known: frozenset[str]) -> Shape:
    """numpy's broadcasting; a symbolic size is never taken for 1.

    Args:
        shapes: any ranks.
        known: sizes of the node's outputs, as text; of two different symbols the one among them is taken.
    """
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(_broadcast_sizes(sizes, known) for sizes in zip(*padded, strict=True))


def _broadcast_sizes(sizes: Sequence[Index], known: frozenset[str]) -> Index:
    result: Index = 1
    for value in sizes:
        if same(value, 1) or same(value, result):
            continue
        if same(result, 1):
            result = value
        elif isinstance(value, int) and isinstance(result, int):
            raise Refused(f"sizes {result} and {value} do not broadcast")
        elif isinstance(value, int) or isinstance(result, int):
            result = value if isinstance(value, int) else result
        elif str(value) in known or str(result) in known:
            result = value if str(value) in known else result
        else:
            raise Refused(f"sizes {result} and {value} are not known to be equal")
    return result


def broadcast_index(index: Sequence[Position], shape: Shape, box: Shape) -> tuple[Position, ...]:
    """Index into a tensor of `shape` for an index into the `box` that it was broadcast to.

    Where both have one element the index stays: it is written like that, and a reader that says 0 instead
    looks as if it read something else.
    """
    skipped = len(index) - len(shape)
    aligned = zip(index[skipped:], shape, box[skipped:], strict=True)
    return tuple(0 if same(s, 1) and not same(b, 1) else i for i, s, b in aligned)


def fits(shape: Shape, box: Shape) -> bool:
    """Whether a tensor can be broadcast to a box; symbols that differ are taken for equal."""
    if len(shape) > len(box):
        return False
    aligned = zip(reversed(shape), reversed(box), strict=False)
    return all(
        same(a, 1) or same(a, b) or not (isinstance(a, int) and isinstance(b, int)) for a, b in aligned
    )


def floor_div(value: Position, divisor: Index) -> Any:
    """value // divisor for indices that are not negative."""
    if isinstance(value, Scalar):
        return value // divisor
    if isinstance(value, int) and isinstance(divisor, int):
        return value // divisor
    return 0 if value == 0 else symbolic.int_floor(value, divisor)


def modulo(value: Position, divisor: Index) -> Any:
    """value % divisor for indices that are not negative."""
    if isinstance(value, Scalar):
        return value % divisor
    if isinstance(value, int) and isinstance(divisor, int):
        return value % divisor
    return value - divisor * floor_div(value, divisor)


def flatten_index(index: Sequence[Position], shape: Sequence[Index]) -> Any:
    """Row-major offset."""
    offset: Any = 0
    for position, extent in zip(index, shape, strict=True):
        offset = position if isinstance(offset, int) and offset == 0 else offset * extent + position
    return offset


def unflatten_index(offset: Position, shape: Sequence[Index]) -> tuple[Any, ...]:
    """Index of a row-major offset."""
    if len(shape) == 1:
        return (offset,)
    index: list[Any] = []
    for d in range(len(shape)):
        stride = product(shape[d + 1 :])
        quotient = floor_div(offset, stride) if not same(stride, 1) else offset
        index.append(quotient if d == 0 else 0 if same(shape[d], 1) else modulo(quotient, shape[d]))
    return tuple(index)


def divide(a: Index, b: Index) -> Index | None:
    """a / b where b certainly divides a."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    quotient = sympy.cancel(cast(sympy.Expr, sympy.sympify(a)) / b)
    numerator, denominator = quotient.as_numer_denom()
    # (N + 3)/2 may not be whole: only polynomials with whole coefficients count.
    return size(numerator) if denominator == 1 else None


def common_factors(first: Shape, second: Shape) -> tuple[Shape, list[list[int]], list[list[int]]] | None:
    """The coarsest shape that both shapes are merges of.

    Returns:
        the finer shape, and for each dimension of the first and of the second shape the dimensions of the
        finer one that it merges; None where no such shape exists, as for (6, 4) and (8, 3).
    """
    left: list[tuple[int, Index]] = list(enumerate(first))
    right: list[tuple[int, Index]] = list(enumerate(second))
    factors: list[Index] = []
    owners: list[tuple[int, int]] = []
    while left and right:
        (i, a), (j, b) = left.pop(), right.pop()
        if same(a, 1) and not same(b, 1):
            right.append((j, b))
            continue
        if same(b, 1) and not same(a, 1):
            left.append((i, a))
            continue
        if same(a, b):
            factors.append(a)
        elif (quotient := divide(a, b)) is not None:
            factors.append(b)
            left.append((i, quotient))
        elif (quotient := divide(b, a)) is not None:
            factors.append(a)
            right.append((j, quotient))
        else:
            return None
        owners.append((i, j))
    if any(not same(s, 1) for _, s in (*left, *right)):
        return None
    factors.reverse()
    owners.reverse()
    groups = [[[d for d, o in enumerate(owners) if o[side] == axis] for axis in range(len(shape))]
              for side, shape in ((0, first), (1, second))]  # fmt: skip
    return tuple(factors), groups[0], groups[1]


def merged_index(
    index: Sequence[Position], factors: Sequence[Index], groups: list[list[int]]
) -> tuple[Any, ...]:
    """Index into a shape whose dimensions merge dimensions of a finer one."""
    return tuple(flatten_index([index[d] for d in g], [factors[d] for d in g]) if g else 0 for g in groups)
