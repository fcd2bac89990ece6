"""Activations, each kept as the ONNX operator of its name where there is one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    FLOATS,
    Value,
    broadcast,
    cast,
    full,
    op,
    result_dtype,
    sizes_of,
    typed,
)
from daceml.frontend.onnx_export.translations.precision import attributes_hold, rounds_once
from daceml.frontend.onnx_export.translations.torch_kernels import kernel


@translates("aten.relu.default")
def relu(self: Value) -> Value:
    # ONNX has no Relu of unsigned numbers, none of which is negative
    return op.Identity(self) if self.dtype == ir.DataType.UINT8 else op.Relu(self)


@translates("aten.sigmoid.default")
def sigmoid(self: Value) -> Value:
    return op.Sigmoid(self)


@translates("aten.tanh.default")
def tanh(self: Value) -> Value:
    return op.Tanh(self)


@translates("aten.mish.default")
def mish(self: Value) -> Value:
    return op.Mish(self)


@translates("aten.silu.default")
@rounds_once
def silu(self: Value) -> Value:
    # ONNX has Swish from opset 24 on
    return op.Mul(self, typed(op.Sigmoid(self), self))


@translates("aten.gelu.default")
def gelu(self: Value, *, approximate: str = "none") -> Value:
    return op.Gelu(self, approximate=approximate)


@translates("aten.softplus.default")
@rounds_once
def softplus(self: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(beta x)) / beta; torch returns x above the threshold.

    From 20 on that is off by less than 3e-9, which only float64 holds: the exact value stays one operator, so
    that patterns find it.
    """
    scaled = self if beta == 1 else typed(op.Mul(self, beta), self)
    y = op.Softplus(scaled)
    if beta != 1:
        y = op.Div(typed(y, self), beta)
    if threshold >= 20:
        return y
    above = typed(op.Greater(scaled, threshold), self, dtype=ir.DataType.BOOL)
    return op.Where(above, self, typed(y, self))


@translates("aten.log_sigmoid.default")
def log_sigmoid(self: Value) -> Value:
    # -softplus(-x)
    negative = typed(op.Neg(self), self)
    return op.Sub(0.0, typed(op.Softplus(negative), self))  # 0.0 far out, where Neg gives -0.0


@translates("aten.hardtanh.default")
def hardtanh(self: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    kind = self.dtype or ir.DataType.FLOAT
    return kernel("HardTanh")(self, full([], float(min_val), kind), full([], float(max_val), kind))


@translates("aten.relu6.default")
def relu6(self: Value) -> Value:
    return hardtanh(self, 0.0, 6.0)


@translates("aten.clamp.default")
def clamp(self: Value, min: float | Value | None = None, max: float | Value | None = None) -> Value:
    return op.Clip(self, min, max)


@translates("aten.clamp_min.default")
def clamp_min(self: Value, min: float | Value) -> Value:
    return op.Clip(self, min, None)


@translates("aten.clamp_max.default")
def clamp_max(self: Value, max: float | Value) -> Value:
    return op.Clip(self, None, max)


@translates("aten.clamp.Tensor")
def clamp_between(self: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Bounds that are tensors, which have gradients of their own: at a bound it is the input that has it."""
    shape = broadcast(*(value for value in (self, min, max) if value is not None))

    def result(value: Value, dtype: ir.DataType | None = self.dtype) -> Value:
        return typed(value, dtype=dtype, shape=shape)

    def true(value: Value) -> Value:
        return result(value, ir.DataType.BOOL)

    clamped = self
    if min is not None:
        clamped = result(op.Max(clamped, min))
    if max is not None:
        clamped = result(op.Min(clamped, max))
    if self.dtype not in FLOATS:
        return op.Identity(clamped)
    # NaN, and bounds that are equal: torch gives none of the three a gradient
    chosen = result(kernel("StopGradient")(clamped))
    inside: list[Value] = []
    if max is not None:
        over = true(op.Greater(self, max))
        if min is not None:
            over = true(op.Or(over, true(op.Less(max, min))))
            over = true(op.And(over, true(op.Equal(clamped, max))))  # not where min is NaN
        chosen = result(op.Where(over, max, chosen))
        inside.append(true(op.LessOrEqual(self, max)))
    if min is not None:
        under = true(op.Less(self, min))
        under = under if max is None else true(op.And(under, true(op.Less(min, max))))
        chosen = result(op.Where(under, min, chosen))
        inside.append(true(op.GreaterOrEqual(self, min)))
    within = inside[0] if len(inside) == 1 else true(op.And(*inside))
    return op.Where(within, self, chosen)


@translates("aten.clamp_min.Tensor")
def clamp_above(self: Value, min: Value) -> Value:
    return clamp_between(self, min, None)


@translates("aten.clamp_max.Tensor")
def clamp_below(self: Value, max: Value) -> Value:
    return clamp_between(self, None, max)


@translates("aten.hardswish.default")
def hardswish(self: Value) -> Value:
    return op.HardSwish(self)


@translates("aten.hardsigmoid.default")
def hardsigmoid(self: Value) -> Value:
    if self.dtype != ir.DataType.DOUBLE:
        return op.HardSigmoid(self, alpha=1 / 6, beta=0.5)

    # an attribute holds 24 binary digits of a sixth
    def where(condition: Value, yes: Value, no: Value) -> Value:
        return typed(op.Where(typed(condition, self, dtype=ir.DataType.BOOL), yes, no), self)

    between = typed(op.Div(typed(op.Add(self, 3.0), self), 6.0), self)
    undefined = typed(op.Mul(self, 0.0), self)  # NaN, whose gradient is zero
    below = where(op.LessOrEqual(self, -3.0), full((), 0.0, self.dtype), undefined)
    outside = where(op.GreaterOrEqual(self, 3.0), full((), 1.0, self.dtype), below)
    return where(op.Less(typed(op.Abs(self), self), 3.0), between, outside)


@translates("aten.leaky_relu.default")
def leaky_relu(self: Value, negative_slope: float = 0.01) -> Value:
    if attributes_hold(self, negative_slope):
        return op.LeakyRelu(self, alpha=float(negative_slope))
    return op.Where(_positive(self), self, typed(op.Mul(self, float(negative_slope)), self))


@translates("aten.prelu.default")
def prelu(self: Value, weight: Value) -> Value:
    """The slope is one number, or one for each channel (dimension 1)."""
    rank = len(sizes_of(self))
    if rank == 0 and sizes_of(weight):
        weight = typed(op.Squeeze(weight, [0]), weight, shape=())
    (slopes,) = sizes_of(weight) or (1,)
    if slopes == 1 or rank <= 2:
        return op.PRelu(self, weight)
    shape = [slopes] + [1] * (rank - 2)
    return op.PRelu(self, typed(op.Reshape(weight, shape), weight, shape=shape))


def _positive(value: Value) -> Value:
    return typed(op.Greater(value, 0.0), value, dtype=ir.DataType.BOOL)


def _expm1_below_zero(value: Value, divisor: float = 1.0) -> Value:
    """exp(x / divisor) - 1 up to 0, and 0 above, where it could overflow: its derivative would be 0 inf."""
    low = typed(op.Where(_positive(value), 0.0, value), value)
    low = low if divisor == 1 else typed(op.Div(low, divisor), value)
    return typed(kernel("Expm1")(low), value)


@translates("aten.elu.default")
def elu(self: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if input_scale != 1:  # of negative numbers alone
        scaled = typed(op.Mul(self, float(input_scale)), self)
        below = typed(op.Mul(_expm1_below_zero(scaled), float(alpha) * float(scale)), self)
        above = self if scale == 1 else typed(op.Mul(self, float(scale)), self)
        return op.Where(_positive(self), above, below)
    if not attributes_hold(self, alpha, scale):
        below = typed(op.Mul(_expm1_below_zero(self), float(alpha)), self)
        unscaled = op.Where(_positive(self), self, below)
        return unscaled if scale == 1 else op.Mul(typed(unscaled, self), float(scale))
    if scale == 1:
        return op.Elu(self, alpha=float(alpha))
    return op.Selu(self, alpha=float(alpha), gamma=float(scale))


@translates("aten.selu.default")
def selu(self: Value) -> Value:
    if self.dtype != ir.DataType.DOUBLE:
        return op.Selu(self)
    # attributes hold 24 binary digits of torch's constants
    below = typed(op.Mul(_expm1_below_zero(self), 1.6732632423543772848170429916717), self)
    whole = typed(op.Where(_positive(self), self, below), self)
    return op.Mul(whole, 1.0507009873554804934193349852946)


@translates("aten.celu.default")
def celu(self: Value, alpha: float = 1.0) -> Value:
    if self.dtype == ir.DataType.FLOAT:
        return op.Celu(self, alpha=float(alpha))
    # ONNX has Celu for float32 alone
    below = _expm1_below_zero(self, float(alpha))
    return op.Where(_positive(self), self, typed(op.Mul(below, float(alpha)), self))


@translates("aten.softshrink.default")
@rounds_once
def softshrink(self: Value, lambd: float = 0.5) -> Value:
    """Towards 0 by a constant; the zero between is a product, which keeps NaN."""

    def where(condition: Value, yes: Value, no: Value) -> Value:
        return op.Where(typed(condition, self, dtype=ir.DataType.BOOL), typed(yes, self), typed(no, self))

    below = where(op.Less(self, -lambd), op.Add(self, lambd), op.Mul(self, 0.0))
    return where(op.Greater(self, lambd), op.Sub(self, lambd), below)


@translates("aten.hardshrink.default")
def hardshrink(self: Value, lambd: float = 0.5) -> Value:
    """0 near 0; NaN, of which ONNX's Shrink makes 0, is kept without a gradient."""

    def where(condition: Value, yes: Value, no: Value | float) -> Value:
        return op.Where(typed(condition, self, dtype=ir.DataType.BOOL), yes, no)

    size, undefined = typed(op.Abs(self), self), typed(op.Mul(self, 0.0), self)
    near = where(op.LessOrEqual(size, lambd), full((), 0.0, self.dtype or ir.DataType.FLOAT), undefined)
    return where(op.Greater(size, lambd), self, typed(near, self))


@translates("aten.threshold.default")
@rounds_once
def threshold(self: Value, threshold: float, value: float) -> Value:
    """The value where x is not above the threshold; of whole numbers both are cut to whole numbers first."""
    if self.dtype not in FLOATS:
        threshold, value = int(threshold), int(value)
    below = typed(op.LessOrEqual(self, threshold), self, dtype=ir.DataType.BOOL)
    return op.Where(below, value, self)


@translates("aten.glu.default")
def glu(self: Value, dim: int = -1) -> Value:
    half = sizes_of(self)
    if not isinstance(half[dim], int):
        raise UntranslatableError("a gated unit over a symbolic dimension")
    half[dim] = half[dim] // 2  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    left, gate = op.Split(self, axis=dim, num_outputs=2)
    opened = typed(op.Sigmoid(typed(gate, self, shape=half)), self, shape=half)
    return op.Mul(typed(left, self, shape=half), opened)


def _along(operator: Callable[[Value], Value], x: Value) -> Value:
    """An operator along a dimension; a single number is a vector of one, as torch has it."""
    if sizes_of(x):
        return operator(x)
    row = typed(op.Unsqueeze(x, [0]), x, shape=(1,))
    return op.Squeeze(typed(operator(row), row), [0])


def _normalised(operator: Any, self: Value, dim: int, dtype: ir.DataType | int | None) -> Value:
    x = cast(self, result_dtype(dtype, self.dtype) or ir.DataType.FLOAT)
    return _along(lambda rows: operator(rows, axis=dim), x)


@translates("aten.softmax.int")
def softmax(self: Value, dim: int, dtype: ir.DataType | None = None) -> Value:
    return _normalised(op.Softmax, self, dim, dtype)


@translates("aten._safe_softmax.default")
def safe_softmax(self: Value, dim: int, dtype: ir.DataType | None = None) -> Value:
    """0, and no gradient, where all of a row is -inf."""

    def safe(x: Value) -> Value:
        sizes = sizes_of(x)
        if sizes[dim] == 0:
            return op.Softmax(x, axis=dim)
        sizes[dim] = 1
        largest = typed(op.ReduceMax(x, [dim], keepdims=1), x, shape=sizes)
        masked = typed(op.Equal(largest, -math.inf), dtype=ir.DataType.BOOL, shape=sizes)
        y = op.Softmax(typed(op.Where(masked, 0.0, x), x), axis=dim)
        return op.Where(masked, 0.0, typed(y, x))

    return _along(safe, cast(self, result_dtype(dtype, self.dtype) or ir.DataType.FLOAT))


@translates("aten._softmax.default")
def plain_softmax(self: Value, dim: int, half_to_float: bool = False) -> Value:
    x = cast(self, ir.DataType.FLOAT) if half_to_float is True else self
    return _along(lambda rows: op.Softmax(rows, axis=dim), x)


@translates("aten.log_softmax.int")
def log_softmax(self: Value, dim: int, dtype: ir.DataType | None = None) -> Value:
    return _normalised(op.LogSoftmax, self, dim, dtype)


@translates("aten._log_softmax.default")
def plain_log_softmax(self: Value, dim: int, half_to_float: bool) -> Value:
    x = cast(self, ir.DataType.FLOAT) if half_to_float else self
    return _along(lambda rows: op.LogSoftmax(rows, axis=dim), x)
