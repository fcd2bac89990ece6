"""Functions of one or two numbers beyond arithmetic, right where the number is huge, -0, NaN or infinite."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import FLOATS, Value, broadcast, cast, full, op, typed
from daceml.frontend.onnx_export.translations.precision import rounds_once
from daceml.frontend.onnx_export.translations.torch_kernels import kernel

BOOL = ir.DataType.BOOL


def _float(value: Value) -> Value:
    """torch computes functions of whole numbers in its default type."""
    return value if value.dtype in FLOATS else cast(value, ir.DataType.FLOAT)


@translates("aten.erfc.default", "aten.special_erfc.default")
def erfc(self: Value) -> Value:
    return kernel("Erfc")(_float(self))


@translates("aten.special_entr.default")
@rounds_once
def entr(self: Value) -> Value:
    return kernel("Entropy")(_float(self))


@translates("aten.special_erfcx.default", "aten.special_log_ndtr.default")
def tail(self: Value) -> Value:
    """Products of functions that overflow and underflow, of which nothing is left in the tails."""
    raise UnsupportedError(
        "the scaled complementary error function and the logarithm of a normal distribution"
    )


@translates("aten.logaddexp.default")
def logaddexp(self: Value, other: Value) -> Value:
    return kernel("LogAddExp")(self, other)


@translates("aten.logaddexp2.default")
def logaddexp2(self: Value, other: Value) -> Value:
    return kernel("LogAddExp2")(self, other)


def _never(like: Value) -> Value:
    """False in the shape of a tensor."""
    return op.And(typed(op.Cast(like, to=BOOL), like, dtype=BOOL), False)


@translates("aten.isposinf.default")
def isposinf(self: Value) -> Value:
    return op.IsInf(self, detect_negative=0) if self.dtype in FLOATS else _never(self)


@translates("aten.isneginf.default")
def isneginf(self: Value) -> Value:
    return op.IsInf(self, detect_positive=0) if self.dtype in FLOATS else _never(self)


@translates("aten.isfinite.default")
def isfinite(self: Value) -> Value:
    """True for every whole number."""
    if self.dtype in FLOATS:
        parts = (typed(test(self), self, dtype=BOOL) for test in (op.IsInf, op.IsNaN))
        return op.Not(typed(op.Or(*parts), self, dtype=BOOL))
    return op.Not(typed(_never(self), self, dtype=BOOL))


@translates("aten.sign.default", "aten.sgn.default")
def sign(self: Value) -> Value:
    """Of a bool, itself."""
    return op.Identity(self) if self.dtype == BOOL else op.Sign(self)


@translates("aten.signbit.default")
def signbit(self: Value) -> Value:
    """Of -0 and of a negative NaN too, which are not less than 0."""
    if self.dtype in FLOATS:
        return kernel("SignBit")(self)
    if self.dtype in (BOOL, ir.DataType.UINT8):
        return _never(self)
    return op.Less(self, 0)


@translates("aten.heaviside.default")
def heaviside(self: Value, values: Value) -> Value:
    """0 for NaN, which is not greater than 0."""
    if self.dtype != values.dtype or self.dtype == BOOL:
        raise UntranslatableError(f"a step of {self.dtype} with values of {values.dtype}")
    step = cast(typed(op.Greater(self, 0), self, dtype=BOOL), self.dtype or ir.DataType.FLOAT)
    return op.Where(typed(op.Equal(self, 0), self, dtype=BOOL), values, step)


@translates("aten.copysign.Tensor")
def copysign(self: Value, other: Value) -> Value:
    """The sign of -0 counts; of zeros, the magnitude has no slope. The slope by the sign is 0, not absent."""
    negative = typed(signbit(other), other, dtype=BOOL)
    kind = other.dtype or ir.DataType.FLOAT
    unit = typed(op.Where(negative, full((), -1.0, kind), full((), 1.0, kind)), other)
    flat = (op.IsNaN(other), op.Equal(other, 0.0))
    level = typed(op.Or(*(typed(where, other, dtype=BOOL) for where in flat)), other, dtype=BOOL)
    sign = typed(op.Sign(typed(op.Where(level, unit, other), other)), other)
    return op.Mul(typed(op.Abs(self), self), sign)


@translates("aten.copysign.Scalar")
def copysign_number(self: Value, other: float) -> Value:
    size = op.Abs(self)
    return op.Neg(typed(size, self)) if math.copysign(1.0, other) < 0 else size


@translates("aten.xlogy.Tensor")
@rounds_once
def xlogy(self: Value, other: Value) -> Value:
    """x log(y), and 0 for 0 log(0)."""
    return _times_logarithm("XLogY", self, other)


@translates("aten.special_xlog1py.default")
@rounds_once
def xlog1py(self: Value, other: Value) -> Value:
    """x log(1 + y), and 0 for 0 log(0)."""
    return _times_logarithm("XLog1PY", self, other)


def _times_logarithm(name: str, self: Value, other: Value) -> Value:
    if self.dtype not in FLOATS or self.dtype != other.dtype:
        raise UntranslatableError(f"x log(y) of {self.dtype} and {other.dtype}")
    return typed(kernel(name)(self, other), dtype=self.dtype, shape=broadcast(self, other))


@translates("aten.xlogy.Scalar_Other")
def xlogy_number(self: Value, other: float) -> Value:
    return xlogy(self, full((), other, self.dtype or ir.DataType.FLOAT))


@translates("aten.xlogy.Scalar_Self")
def xlogy_of_number(self: float, other: Value) -> Value:
    return xlogy(full((), self, other.dtype or ir.DataType.FLOAT), other)


@translates("aten.logit.default", "aten.special_logit.default")
def logit(self: Value, eps: float | None = None) -> Value:
    """log(x / (1 - x)) of x between eps and 1 - eps, which have the type of x; NaN stays NaN."""
    x = _float(self)
    if eps is not None:
        kind = (x.dtype or ir.DataType.FLOAT).numpy()
        low = np.asarray(eps).astype(kind)
        x = typed(op.Clip(x, float(low), float((1 - low).astype(kind))), x)
    return _log_odds(x)


@rounds_once
def _log_odds(x: Value) -> Value:
    """Infinite slopes at 0 and 1, where that of a quotient would be an infinity times 0, and NaN outside."""
    kind = x.dtype or ir.DataType.FLOAT
    outside = (typed(op.Less(x, 0.0), x, dtype=BOOL), typed(op.Greater(x, 1.0), x, dtype=BOOL))
    nothing = typed(op.Where(typed(op.Or(*outside), x, dtype=BOOL), full((), math.nan, kind), x), x)
    x = typed(op.Add(x, typed(kernel("StopGradient")(typed(op.Sub(nothing, x), x)), x)), x)
    rest = typed(op.Sub(full((), 1.0, kind), x), x)
    return op.Sub(typed(op.Log(x), x), typed(op.Log(rest), x))


@translates("aten.fake_quantize_per_tensor_affine.default", "aten.fake_quantize_per_channel_affine.default")
def fake_quantize(self: Value, *parameters: Value | float) -> Value:
    raise UnsupportedError("a gradient that passes through roundings")
