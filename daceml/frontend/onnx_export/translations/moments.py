"""Variances and standard deviations, alone and with their means.

Of half types in float32 until the end, as in torch: squares overflow first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import translates
from daceml.frontend.onnx_export.translations.emit import (
    Value,
    axes_of,
    cast,
    full,
    is_static,
    op,
    sizes_of,
    typed,
)
from daceml.frontend.onnx_export.translations.precision import rounds_once
from daceml.frontend.onnx_export.translations.reduction import Dims, mean_dims
from daceml.frontend.onnx_export.translations.sizes import sym_size
from daceml.frontend.onnx_export.translations.torch_kernels import kernel


def _variance(self: Value, dim: Dims, correction: float, keepdim: bool) -> Value:
    """mean((x - mean x)^2) n / (n - correction)."""
    sizes = sizes_of(self)
    axes = axes_of(dim, len(sizes)) or list(range(len(sizes)))
    counted = [sizes[axis] for axis in axes]
    n = math.prod(size for size in counted if isinstance(size, int))
    kept = [1 if axis in axes else size for axis, size in enumerate(sizes)]
    mean = typed(op.ReduceMean(self, axes, keepdims=1), self, shape=kept)
    if is_static(counted) and n <= correction:
        # no gradient goes through the mean: that of all its elements is zero, and not finite minus not finite
        mean = _constant(mean)
    centred = typed(op.Sub(self, mean), self)
    squares = typed(op.Mul(centred, centred), self)
    shape = kept if keepdim else [size for axis, size in enumerate(sizes) if axis not in axes]
    variance = typed(op.ReduceMean(squares, axes, keepdims=int(keepdim)), self, shape=shape)
    if correction == 0:
        return variance
    if not is_static(counted):
        return typed(op.Div(variance, _shrunk(self, axes, correction)), variance)
    if n > correction:
        return typed(op.Mul(variance, n / (n - correction)), variance)
    undefined = typed(op.Mul(variance, math.inf if n else math.nan), variance)
    if n == correction or not n:
        return undefined
    # torch divides by zero, and its formula for the gradient by n - correction, which is negative
    linear = typed(op.Mul(variance, n / (n - correction)), variance)
    flat = typed(op.Sub(linear, _constant(linear)), variance)
    return typed(op.Add(_constant(undefined), flat), variance)


def _constant(value: Value) -> Value:
    """The value, without a gradient."""
    return typed(kernel("StopGradient")(value), value)


def _shrunk(self: Value, axes: Sequence[int], correction: float) -> Value:
    """(n - correction) / n for a symbolic number of elements n; 0 where that is negative."""
    dtype = self.dtype if self.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    count = full((), 1, dtype)
    for axis in axes:
        size = cast(typed(sym_size(self, axis), dtype=ir.DataType.INT64, shape=()), dtype)
        count = typed(op.Mul(count, size), count)
    left = typed(op.Sub(count, full((), correction, dtype)), count)
    left = typed(op.Max(left, full((), 0, dtype)), count)
    return cast(typed(op.Div(left, count), count), self.dtype or dtype)


@translates("aten.var.correction")
@rounds_once
def var(self: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Value:
    return _variance(self, dim, 1 if correction is None else correction, keepdim)


@translates("aten.std.correction")
@rounds_once
def std(self: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Value:
    variance = _variance(self, dim, 1 if correction is None else correction, keepdim)
    return _deviation(variance)


def _deviation(variance: Value) -> Value:
    """Its square root, which torch gives the gradient zero where nothing varies."""
    zero = typed(op.Equal(variance, 0.0), variance, dtype=ir.DataType.BOOL)
    root = typed(op.Sqrt(typed(op.Where(zero, 1.0, variance), variance)), variance)
    return typed(op.Where(zero, 0.0, root), variance)


@translates("aten.var.dim")
@rounds_once
def var_dim(self: Value, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Value:
    return _variance(self, dim, int(unbiased), keepdim)


@translates("aten.std.dim")
@rounds_once
def std_dim(self: Value, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Value:
    return _deviation(_variance(self, dim, int(unbiased), keepdim))


@translates("aten.var.default")
@rounds_once
def var_all(self: Value, unbiased: bool = True) -> Value:
    return _variance(self, None, int(unbiased), False)


@translates("aten.std.default")
@rounds_once
def std_all(self: Value, unbiased: bool = True) -> Value:
    return _deviation(_variance(self, None, int(unbiased), False))


def _with_mean(
    self: Value, dim: Dims, correction: float | None, keepdim: bool, *, root: bool
) -> tuple[Value, Value]:
    spread = _variance(self, dim, 1 if correction is None else correction, keepdim)
    if root:
        spread = _deviation(spread)
    return spread, typed(mean_dims(self, dim, keepdim), spread)


@translates("aten.var_mean.correction")
@rounds_once
def var_mean(
    self: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    return _with_mean(self, dim, correction, keepdim, root=False)


@translates("aten.std_mean.correction")
@rounds_once
def std_mean(
    self: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    return _with_mean(self, dim, correction, keepdim, root=True)


@translates("aten.var_mean.dim")
@rounds_once
def var_mean_dim(self: Value, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> tuple[Value, Value]:
    return _with_mean(self, dim, int(unbiased), keepdim, root=False)


@translates("aten.std_mean.dim")
@rounds_once
def std_mean_dim(self: Value, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> tuple[Value, Value]:
    return _with_mean(self, dim, int(unbiased), keepdim, root=True)
