"""What translations share: types and shapes of intermediate values, typed constants, static sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir
from onnxscript import opset23

op: Any = opset23
"""The operators of ONNX; without types, because onnxscript has those of its scripts, not of tracing."""

Value = ir.Value
Size = int | str | None
"""One dimension: a number, the name of a symbolic expression, or not known."""

END = 2**63 - 1
"""ONNX Slice: a bound past every end."""

FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})


def sizes_of(value: Value) -> list[Size]:
    """The dimensions of a value, symbolic ones by name."""
    if value.shape is None:
        raise ValueError(f"the shape of {value.name} is not known")
    return [size if isinstance(size, int) else size.value for size in value.shape]


def rank_of(value: Value) -> int:
    """The number of dimensions of a value."""
    return len(sizes_of(value))


def typed(
    value: Value,
    like: Value | None = None,
    *,
    dtype: ir.DataType | None = None,
    shape: Sequence[Size] | None = None,
) -> Value:
    """Give an intermediate value its type and shape; the exporter does it for results only."""
    if dtype is None and like is not None:
        dtype = like.dtype
    if shape is None and like is not None and like.shape is not None:
        shape = sizes_of(like)
    if dtype is not None:
        value.dtype = dtype
    if shape is not None:
        value.shape = ir.Shape(list(shape))
    return value


def product(sizes: Sequence[Size]) -> Size:
    """The product of dimensions, written as torch writes symbolic expressions (`8*s77`)."""
    static = math.prod(size for size in sizes if isinstance(size, int))
    symbolic = [size for size in sizes if not isinstance(size, int)]
    if not symbolic:
        return static
    if None in symbolic:
        return None
    factors = [size if str(size).isidentifier() or len(sizes) == 1 else f"({size})" for size in symbolic]
    return "*".join(str(factor) for factor in ([static] if static != 1 else []) + factors)


def broadcast(*values: Value) -> list[Size] | None:
    """The common shape of operands; None where a size meets one that may differ."""
    result: list[Size] = []
    for column in zip_longest(*(reversed(sizes_of(value)) for value in values), fillvalue=1):
        sizes = {size for size in column if size != 1} or {1}
        if len(sizes) > 1 or None in sizes:
            return None
        result.append(sizes.pop())
    return result[::-1]


def full(shape: Sequence[int], number: float, dtype: ir.DataType) -> Value:
    """A constant of one repeated number."""
    array = np.full(tuple(shape), number).astype(dtype.numpy())
    return typed(op.Constant(value=ir.tensor(array, dtype=dtype)), dtype=dtype, shape=shape)


def array(numbers: np.ndarray, dtype: ir.DataType) -> Value:
    """A constant of given numbers."""
    values = numbers.astype(dtype.numpy())
    return typed(op.Constant(value=ir.tensor(values, dtype=dtype)), dtype=dtype, shape=values.shape)


def cast(value: Value, dtype: ir.DataType) -> Value:
    """The value in another element type; the value itself where it has that type already."""
    if value.dtype == dtype:
        return value
    return typed(
        op.Cast(value, to=dtype), dtype=dtype, shape=None if value.shape is None else sizes_of(value)
    )


def vector(sizes: Sequence[int | Value]) -> Sequence[int] | Value:
    """Sizes as an int64 vector: one constant where all are static, else a Concat."""
    if all(isinstance(size, int) for size in sizes):
        return [int(size) for size in sizes]  # pyright: ignore[reportArgumentType]
    pieces = [
        typed(op.Constant(value_ints=[size]), dtype=ir.DataType.INT64, shape=(1,))
        if isinstance(size, int)
        # the size as a vector of one is there already where it was read from a shape
        else size.meta.get("daceml.length")
        or typed(op.Reshape(size, [1]), dtype=ir.DataType.INT64, shape=(1,))
        for size in sizes
    ]
    if len(pieces) == 1:
        return pieces[0]
    return typed(op.Concat(*pieces, axis=0), dtype=ir.DataType.INT64, shape=(len(pieces),))


def is_symbol(size: int | Value, dimension: Size) -> bool:
    """Whether a size argument was read from a dimension of this symbolic size."""
    return isinstance(size, Value) and dimension is not None and size.meta.get("daceml.size") == dimension


def result_dtype(dtype: ir.DataType | int | None, default: ir.DataType | None) -> ir.DataType | None:
    """An optional dtype argument; the exporter writes -1 for a keyword that is None."""
    return default if dtype is None or dtype == -1 else ir.DataType(dtype)


def is_static(sizes: Sequence[Size]) -> TypeGuard[Sequence[int]]:
    """Whether every dimension is a number."""
    return all(isinstance(size, int) for size in sizes)


def each(argument: int | Sequence[int], count: int) -> list[int]:
    """One number for each spatial dimension, from a number or a list that may be shorter."""
    numbers = [argument] if isinstance(argument, int) else list(argument)
    return numbers * count if len(numbers) == 1 else numbers


def axes_of(dim: int | Sequence[int] | None, rank: int) -> list[int] | None:
    """Reduced axes, not negative; None where torch reduces everything."""
    if dim is None:
        return None
    axes = [dim] if isinstance(dim, int) else list(dim)
    return sorted(axis % rank for axis in axes) if axes and rank else None
