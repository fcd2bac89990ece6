"""Sums, means and extremes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    FLOATS,
    Value,
    axes_of,
    broadcast,
    cast,
    full,
    op,
    product,
    rank_of,
    result_dtype,
    sizes_of,
    typed,
)

Dims = int | Sequence[int] | None


_ADDING = (op.ReduceSum, op.ReduceMean)


def _reduce(operator: Any, self: Value, dim: Dims, keepdim: bool) -> Value:
    axes = axes_of(dim, rank_of(self))
    sizes = sizes_of(self)
    if operator in _ADDING and self.dtype in FLOATS and all(sizes[a] == 1 for a in axes or range(len(sizes))):
        self = typed(op.Add(self, 0.0), self)  # a sum starts from 0, so that of -0.0 alone is 0.0
    if rank_of(self) == 0:
        return op.Identity(self)
    return operator(self, axes, keepdims=int(keepdim))


def _whole(dtype: ir.DataType | int | None, self: Value) -> Value:
    """torch sums integers and booleans in int64."""
    default = self.dtype if self.dtype in FLOATS else ir.DataType.INT64
    return cast(self, result_dtype(dtype, default) or ir.DataType.FLOAT)


@translates("aten.sum.default")
def sum_all(self: Value, *, dtype: ir.DataType | None = None) -> Value:
    return _reduce(op.ReduceSum, _whole(dtype, self), None, False)


@translates("aten.sum.dim_IntList")
def sum_dims(self: Value, dim: Dims, keepdim: bool = False, *, dtype: ir.DataType | None = None) -> Value:
    return _reduce(op.ReduceSum, _whole(dtype, self), dim, keepdim)


@translates("aten.mean.default")
def mean_all(self: Value, *, dtype: ir.DataType | None = None) -> Value:
    return _reduce(op.ReduceMean, _whole(dtype, self), None, False)


@translates("aten.mean.dim")
def mean_dims(self: Value, dim: Dims, keepdim: bool = False, *, dtype: ir.DataType | None = None) -> Value:
    return _reduce(op.ReduceMean, _whole(dtype, self), dim, keepdim)


@translates("aten.prod.default")
def prod_all(self: Value, *, dtype: ir.DataType | None = None) -> Value:
    return _reduce(op.ReduceProd, _whole(dtype, self), None, False)


def _any(self: Value, dim: Dims, keepdim: bool) -> Value:
    # counted, because the largest of no booleans is not defined, and torch says False
    return _counted(op.Greater, self, cast(self, ir.DataType.BOOL), dim, keepdim)


def _all(self: Value, dim: Dims, keepdim: bool) -> Value:
    # none is zero; of no booleans torch says True
    zeros = typed(op.Not(cast(self, ir.DataType.BOOL)), self, dtype=ir.DataType.BOOL)
    return _counted(op.Equal, self, zeros, dim, keepdim)


def _counted(compare: Any, self: Value, chosen: Value, dim: Dims, keepdim: bool) -> Value:
    """Compare the number of chosen elements with 0; bytes are torch's booleans of old, and stay bytes."""
    count = _reduce(op.ReduceSum, cast(chosen, ir.DataType.INT64), dim, keepdim)
    found = compare(count, op.Constant(value_int=0))
    if self.dtype != ir.DataType.UINT8:
        return found
    found.dtype = ir.DataType.BOOL
    return op.Cast(found, to=ir.DataType.UINT8)


@translates("aten.any.default")
def any_all(self: Value) -> Value:
    return _any(self, None, False)


@translates("aten.any.dim", "aten.any.dims")
def any_dims(self: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _any(self, dim, keepdim)


@translates("aten.all.default")
def all_all(self: Value) -> Value:
    return _all(self, None, False)


@translates("aten.all.dim", "aten.all.dims")
def all_dims(self: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _all(self, dim, keepdim)


_ORDERED = {ir.DataType.BOOL: ir.DataType.UINT8, ir.DataType.INT16: ir.DataType.INT32}
"""A type that ONNX's extremes take, with the order of the first one: False < True."""


def _largest(operator: Any, self: Value, dim: Dims, keepdim: bool) -> Value:
    """The extreme of numbers, as ONNX has it: not of int16, nor of booleans, which it does not order."""
    wider = _ORDERED.get(self.dtype or ir.DataType.FLOAT)
    if wider is None or rank_of(self) == 0:
        return _reduce(operator, self, dim, keepdim)
    found = _reduce(operator, cast(self, wider), dim, keepdim)
    found.dtype = wider
    return op.Cast(found, to=self.dtype)


@translates("aten.amax.default")
def amax(self: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return _largest(op.ReduceMax, self, dim, keepdim)


@translates("aten.amin.default")
def amin(self: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return _largest(op.ReduceMin, self, dim, keepdim)


@translates("aten.max.default")
def max_all(self: Value) -> Value:
    return _largest(op.ReduceMax, self, None, False)


@translates("aten.min.default")
def min_all(self: Value) -> Value:
    return _largest(op.ReduceMin, self, None, False)


def _extreme(reduce: Any, argument: Any, self: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    if rank_of(self) == 0:
        raise UntranslatableError("an extreme along a dimension of a scalar")
    numbers = cast(self, ir.DataType.UINT8) if self.dtype == ir.DataType.BOOL else self
    extreme = _largest(reduce, self, dim, keepdim)
    return extreme, argument(numbers, axis=dim, keepdims=int(keepdim))


@translates("aten.max.dim")
def max_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extreme(op.ReduceMax, op.ArgMax, self, dim, keepdim)


@translates("aten.min.dim")
def min_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extreme(op.ReduceMin, op.ArgMin, self, dim, keepdim)


@translates("aten.argmax.default")
def argmax(self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _place(op.ArgMax, self, dim, keepdim)


def _place(operator: Any, self: Value, dim: int | None, keepdim: bool) -> Value:
    """Of everything, the place among the elements in row-major order."""
    if not sizes_of(self):  # the only one
        return full((), 0, ir.DataType.INT64)
    if dim is not None:
        return operator(self, axis=dim, keepdims=int(keepdim))
    sizes = sizes_of(self)
    flat = self if len(sizes) == 1 else typed(op.Reshape(self, [-1]), self, shape=(product(sizes),))
    place = operator(flat, axis=0, keepdims=0)
    if not keepdim:
        return place
    return op.Reshape(typed(place, dtype=ir.DataType.INT64, shape=()), [1] * len(sizes))


@translates("aten.argmin.default")
def argmin(self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _place(op.ArgMin, self, dim, keepdim)


@translates("aten.logsumexp.default")
def logsumexp(self: Value, dim: Dims, keepdim: bool = False) -> Value:
    return _reduce(op.ReduceLogSumExp, self, dim, keepdim)


@translates("aten.cumsum.default")
def cumsum(self: Value, dim: int, *, dtype: ir.DataType | None = None) -> Value:
    return op.CumSum(_whole(dtype, self), op.Constant(value=ir.tensor(dim, dtype=ir.DataType.INT64)))


def _loss(self: Value, reduction: int) -> Value:
    """0 keeps every element, 1 takes the mean, 2 the sum."""
    if reduction == 0:
        return self
    return _reduce(op.ReduceMean if reduction == 1 else op.ReduceSum, self, None, False)


@translates("aten.mse_loss.default")
def mse_loss(self: Value, target: Value, reduction: int = 1) -> Value:
    shape = broadcast(self, target)
    difference = typed(op.Sub(self, target), self, shape=shape)
    return _loss(typed(op.Mul(difference, difference), self, shape=shape), reduction)


@translates("aten.l1_loss.default")
def l1_loss(self: Value, target: Value, reduction: int = 1) -> Value:
    shape = broadcast(self, target)
    difference = typed(op.Sub(self, target), self, shape=shape)
    return _loss(typed(op.Abs(difference), self, shape=shape), reduction)
