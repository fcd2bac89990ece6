"""Dropout: a Dropout node draws every mask. No seed attribute: every call draws anew, as in torch.

ONNX has no dropout of whole channels and none that keeps mean and variance; those draw their mask with a
Dropout node, and apply it with standard operators.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import translates
from daceml.frontend.onnx_export.translations.emit import Value, each, full, op, rank_of, sizes_of, typed

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64

_SATURATION = -1.7580993408473766
"""Where SELU goes for large negative numbers: what alpha dropout puts in the place of what it drops."""


def _probability(number: float, like: Value) -> Value:
    """A scalar that holds the number well: half types would round it."""
    wide = like.dtype == ir.DataType.DOUBLE
    return full((), number, ir.DataType.DOUBLE if wide else ir.DataType.FLOAT)


def _spread(value: Value, like: Value) -> Value:
    """A constant of one element in the shape of another tensor."""
    shape = typed(op.Shape(like), dtype=INT64, shape=(rank_of(like),))
    return typed(op.Expand(value, shape), dtype=value.dtype, shape=sizes_of(like))


@translates("aten.native_dropout.default")
def native_dropout(input: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    if train is False:
        return op.Identity(input), _spread(full((1,), 1, BOOL), input)
    if p == 1:
        # ONNX would scale the nothing that is left by 1 / 0
        return op.Mul(input, 0.0), _spread(full((1,), 0, BOOL), input)
    y, mask = op.Dropout(input, _probability(p, input), full((), 1, BOOL))
    return y, typed(mask, input, dtype=BOOL)


@translates("aten.dropout.default")
def dropout(input: Value, p: float, train: bool) -> Value:
    return native_dropout(input, p, train)[0] if train and p > 0 else op.Identity(input)


def _channels(input: Value) -> Value:
    """Ones, one for each (sample, channel): [N, C, 1, ...]."""
    batch, channels = sizes_of(input)[:2]
    shape = (batch, channels, *each(1, rank_of(input) - 2))
    ones = full((1,) * len(shape), 1.0, input.dtype or ir.DataType.FLOAT)
    if isinstance(batch, int) and isinstance(channels, int):
        target = list(shape)
    else:
        leading = typed(op.Shape(input, start=0, end=2), dtype=INT64, shape=(2,))
        target = leading
        if len(shape) > 2:
            trailing = typed(op.Constant(value_ints=list(shape[2:])), dtype=INT64, shape=(len(shape) - 2,))
            target = typed(op.Concat(leading, trailing, axis=0), dtype=INT64, shape=(len(shape),))
    return typed(op.Expand(ones, target), input, shape=shape)


@translates("aten.feature_dropout.default")
def feature_dropout(input: Value, p: float, train: bool) -> Value:
    """Dropout2d: one draw for each (sample, channel), spread over the spatial dimensions."""
    if not train or p == 0:
        return op.Identity(input)
    if p == 1:
        return op.Mul(input, 0.0)
    channels = _channels(input)
    return op.Mul(input, typed(native_dropout(channels, p, True)[0], channels))


def _alpha_dropout(input: Value, drawn: Value | None, p: float, train: bool) -> Value:
    """a x + b where kept, a s + b where dropped (s the saturation of SELU): mean and variance stay."""
    if not train or p == 0:
        return op.Identity(input)
    if p == 1:
        return op.Mul(input, 0.0)
    drawn = input if drawn is None else drawn
    a = 1 / math.sqrt((_SATURATION**2 * p + 1) * (1 - p))
    b = -_SATURATION * a * p
    kept = typed(op.Add(typed(op.Mul(input, a), input), b), input)
    return op.Where(native_dropout(drawn, p, True)[1], kept, a * _SATURATION + b)


@translates("aten.alpha_dropout.default")
def alpha_dropout(input: Value, p: float, train: bool) -> Value:
    return _alpha_dropout(input, None, p, train)


@translates("aten.feature_alpha_dropout.default")
def feature_alpha_dropout(input: Value, p: float, train: bool) -> Value:
    idle = not train or p in (0, 1)
    return _alpha_dropout(input, None if idle else _channels(input), p, train)
