"""Tensors made from numbers: constants where the shape is static."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    FLOATS,
    Value,
    array,
    cast,
    full,
    op,
    result_dtype,
    sizes_of,
    typed,
    vector,
)

Extent = int | Value


def _kind_of(number: float | Value) -> ir.DataType:
    if isinstance(number, Value):
        return number.dtype or ir.DataType.FLOAT
    if isinstance(number, bool):
        return ir.DataType.BOOL
    return ir.DataType.INT64 if isinstance(number, int) else ir.DataType.FLOAT


def _filled(size: Sequence[Extent], number: float | Value, dtype: ir.DataType) -> Value:
    if isinstance(number, Value):
        number = cast(number, dtype)
        return op.Expand(number, vector(size)) if size else op.Identity(number)
    if not size:
        return full((), number, dtype)
    shape = [extent if isinstance(extent, int) else None for extent in size]
    filled = op.ConstantOfShape(
        vector(size), value=ir.tensor(np.array([number]).astype(dtype.numpy()), dtype=dtype)
    )
    return typed(filled, dtype=dtype, shape=shape)


def _filled_like(self: Value, number: float | Value, dtype: ir.DataType | int | None) -> Value:
    sizes = sizes_of(self)
    kind = result_dtype(dtype, self.dtype) or ir.DataType.FLOAT
    if all(isinstance(size, int) for size in sizes):
        return _filled(sizes, number, kind)  # pyright: ignore[reportArgumentType]
    shape = typed(op.Shape(self), dtype=ir.DataType.INT64, shape=(len(sizes),))
    if isinstance(number, Value):
        return op.Expand(cast(number, kind), shape)
    return op.ConstantOfShape(shape, value=ir.tensor(np.array([number]).astype(kind.numpy()), dtype=kind))


@translates("aten.full.default")
def full_of(
    size: Sequence[Extent], fill_value: float | Value, *, dtype: ir.DataType | None = None, **_: Any
) -> Value:
    return _filled(size, fill_value, result_dtype(dtype, _kind_of(fill_value)) or ir.DataType.FLOAT)


@translates("aten.zeros.default")
def zeros(size: Sequence[Extent], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled(size, 0, result_dtype(dtype, ir.DataType.FLOAT) or ir.DataType.FLOAT)


@translates("aten.ones.default")
def ones(size: Sequence[Extent], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled(size, 1, result_dtype(dtype, ir.DataType.FLOAT) or ir.DataType.FLOAT)


@translates("aten.new_zeros.default")
def new_zeros(self: Value, size: Sequence[Extent], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled(size, 0, result_dtype(dtype, self.dtype) or ir.DataType.FLOAT)


@translates("aten.new_ones.default")
def new_ones(self: Value, size: Sequence[Extent], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled(size, 1, result_dtype(dtype, self.dtype) or ir.DataType.FLOAT)


@translates("aten.empty.memory_format")
def empty(size: Sequence[Extent], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    """Any numbers would do; a draw in place (`bernoulli_`) reads the shape only."""
    return zeros(size, dtype=dtype)


@translates("aten.new_empty.default")
def new_empty(self: Value, size: Sequence[Extent], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return new_zeros(self, size, dtype=dtype)


@translates("aten.empty_like.default")
def empty_like(self: Value, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled_like(self, 0, dtype)


@translates("aten.full_like.default")
def full_like(self: Value, fill_value: float | Value, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled_like(self, fill_value, dtype)


@translates("aten.fill.Scalar", "aten.fill.Tensor")
def fill(self: Value, value: float | Value) -> Value:
    return full_like(self, value)


@translates("aten.zeros_like.default")
def zeros_like(self: Value, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled_like(self, 0, dtype)


@translates("aten.ones_like.default")
def ones_like(self: Value, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _filled_like(self, 1, dtype)


@translates("aten.scalar_tensor.default")
def scalar_tensor(s: float | Value, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    if isinstance(s, Value):
        return op.Cast(s, to=result_dtype(dtype, ir.DataType.FLOAT))
    return full((), s, result_dtype(dtype, ir.DataType.FLOAT) or ir.DataType.FLOAT)


def _range(start: Any, end: Any, step: Any, dtype: ir.DataType | int | None) -> Value:
    numbers = [start, end, step]
    whole = all(isinstance(number, int | Value) for number in numbers)
    kind = result_dtype(dtype, ir.DataType.INT64 if whole else ir.DataType.FLOAT) or ir.DataType.FLOAT
    if not any(isinstance(number, Value) for number in numbers):
        return array(np.arange(*numbers), kind)
    if not whole:
        raise UntranslatableError("a range of symbolic bounds and fractions")
    if kind in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        # exact below 2**24; the result then has the shape that torch knows
        return op.Range(*(cast(n, kind) if isinstance(n, Value) else full((), n, kind) for n in numbers))
    bounds = [n if isinstance(n, Value) else full((), n, ir.DataType.INT64) for n in numbers]
    counted = op.Range(*bounds)
    return counted if kind == ir.DataType.INT64 else op.Cast(typed(counted, dtype=ir.DataType.INT64), to=kind)


@translates("aten.arange.default")
def arange(end: Extent, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _range(0, end, 1, dtype)


@translates("aten.arange.start")
def arange_start(start: Extent, end: Extent, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return _range(start, end, 1, dtype)


@translates("aten.arange.start_step")
def arange_step(
    start: Extent, end: Extent, step: Extent = 1, *, dtype: ir.DataType | None = None, **_: Any
) -> Value:
    return _range(start, end, step, dtype)


@translates("aten.linspace.default")
def linspace(
    start: float | Value, end: float | Value, steps: Extent, *, dtype: ir.DataType | None = None, **_: Any
) -> Value:
    """torch's own numbers: written in operators, the bounds would pass through float32."""
    if isinstance(start, Value) or isinstance(end, Value) or isinstance(steps, Value):
        raise UntranslatableError("a linear space of symbolic bounds")
    kind = result_dtype(dtype, ir.DataType.FLOAT) or ir.DataType.FLOAT
    numbers = torch.linspace(start, end, steps, dtype=getattr(torch, kind.numpy().name))
    return array(numbers.double().numpy() if kind in FLOATS else numbers.numpy(), kind)
