"""Dropout and random tensors. No seed attribute: every call draws anew, as in torch."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from daceml.frontend.translations import UntranslatableError, translates
from daceml.frontend.translations.emit import (
    FLOATS,
    Value,
    each,
    full,
    op,
    rank_of,
    result_dtype,
    sizes_of,
    typed,
    vector,
)


def _probability(number: float, like: Value) -> Value:
    """A scalar that holds the number well: half types would round it."""
    wide = like.dtype == ir.DataType.DOUBLE
    return full((), number, ir.DataType.DOUBLE if wide else ir.DataType.FLOAT)


@translates("aten.native_dropout.default")
def native_dropout(input: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    if train is False:
        mask = typed(op.Expand(full((1,), 1, ir.DataType.BOOL), op.Shape(input)), dtype=ir.DataType.BOOL)
        return op.Identity(input), mask
    y, mask = op.Dropout(input, _probability(p, input), full((), 1, ir.DataType.BOOL))
    return y, typed(mask, input, dtype=ir.DataType.BOOL)


@translates("aten.dropout.default")
def dropout(input: Value, p: float, train: bool) -> Value:
    return native_dropout(input, p, train)[0] if train and p > 0 else op.Identity(input)


@translates("aten.feature_dropout.default")
def feature_dropout(input: Value, p: float, train: bool) -> Value:
    """Dropout2d: one draw for each (sample, channel), spread over the spatial dimensions."""
    if not train or p == 0:
        return op.Identity(input)
    batch, channels = sizes_of(input)[:2]
    shape = (batch, channels, *each(1, rank_of(input) - 2))
    ones = full((1,) * len(shape), 1.0, input.dtype or ir.DataType.FLOAT)
    if isinstance(batch, int) and isinstance(channels, int):
        target = list(shape)
    else:
        leading = typed(op.Shape(input, start=0, end=2), dtype=ir.DataType.INT64, shape=(2,))
        trailing = typed(
            op.Constant(value_ints=list(shape[2:])), dtype=ir.DataType.INT64, shape=(len(shape) - 2,)
        )
        target = typed(op.Concat(leading, trailing, axis=0), dtype=ir.DataType.INT64, shape=(len(shape),))
    spread = typed(op.Expand(ones, target), input, shape=shape)
    kept = typed(native_dropout(spread, p, True)[0], spread)
    return op.Mul(input, kept)


def _drawn(
    operator: Any, like_operator: Any, size: list[Any], dtype: ir.DataType, **attributes: float
) -> Value:
    if dtype not in FLOATS or dtype == ir.DataType.BFLOAT16:
        raise UntranslatableError(f"random numbers of type {dtype}")
    if all(isinstance(extent, int) for extent in size):
        return operator(shape=list(size), dtype=dtype, **attributes)
    zeros = op.ConstantOfShape(vector(size), value=ir.tensor([0.0], dtype=dtype))
    return like_operator(typed(zeros, dtype=dtype), dtype=dtype, **attributes)


@translates("aten.rand.default")
def rand(size: list[Any], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    kind = result_dtype(dtype, ir.DataType.FLOAT) or ir.DataType.FLOAT
    return _drawn(op.RandomUniform, op.RandomUniformLike, size, kind, low=0.0, high=1.0)


@translates("aten.randn.default")
def randn(size: list[Any], *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    kind = result_dtype(dtype, ir.DataType.FLOAT) or ir.DataType.FLOAT
    return _drawn(op.RandomNormal, op.RandomNormalLike, size, kind, mean=0.0, scale=1.0)


@translates("aten.rand_like.default")
def rand_like(self: Value, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return op.RandomUniformLike(self, dtype=result_dtype(dtype, self.dtype), low=0.0, high=1.0)


@translates("aten.randn_like.default")
def randn_like(self: Value, *, dtype: ir.DataType | None = None, **_: Any) -> Value:
    return op.RandomNormalLike(self, dtype=result_dtype(dtype, self.dtype), mean=0.0, scale=1.0)


@translates("aten.bernoulli.default")
def bernoulli(self: Value, *, generator: Any = None) -> Value:
    return op.Bernoulli(self)


@translates("aten.bernoulli.p")
def bernoulli_p(self: Value, p: float, *, generator: Any = None) -> Value:
    """Draws with one probability, in the shape of `self`, whose numbers do not matter."""
    probabilities = typed(op.Expand(full((1,), p, self.dtype or ir.DataType.FLOAT), _shape(self)), self)
    return op.Bernoulli(probabilities)


def _shape(value: Value) -> Any:
    sizes = sizes_of(value)
    if all(isinstance(size, int) for size in sizes):
        return sizes
    return typed(op.Shape(value), dtype=ir.DataType.INT64, shape=(len(sizes),))
