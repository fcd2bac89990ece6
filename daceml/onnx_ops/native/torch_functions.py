"""Elementwise operators of the domain "daceml", by torch's formulas."""

from __future__ import annotations

import math
from typing import Any

import dace
import numpy as np

from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import maximum, rectify, where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, elementwise, is_float
from daceml.sdfg.scalar import Index, Scalar, bit_cast


@implements("Log1p", domain=DOMAIN)
def log1p(data: Tensor, result: Output) -> None:
    result[:] = elementwise("log1p", data)


@implements("Expm1", domain=DOMAIN)
def expm1(data: Tensor, result: Output) -> None:
    result[:] = elementwise("expm1", data)


@implements("Erfc", domain=DOMAIN)
def complementary_error(data: Tensor, result: Output) -> None:
    """Not 1 - erf, of which nothing is left where erf is 1."""
    result[:] = elementwise("erfc", data)


@implements("Entropy", domain=DOMAIN)
def entropy(data: Tensor, result: Output) -> None:
    product = where(data == 0, 0, -(data * np.log(data)))
    result[:] = where(data < 0, -math.inf, product)


@implements("XLogY", domain=DOMAIN)
def x_log_y(first: Tensor, second: Tensor, result: Output) -> None:
    """x log(y); 0 for 0 and a number, and NaN beside NaN."""
    _times_logarithm(first, second, np.log(second), result)


@implements("XLog1PY", domain=DOMAIN)
def x_log1p_y(first: Tensor, second: Tensor, result: Output) -> None:
    """x log(1 + y); 0 for 0 and a number, and NaN beside NaN."""
    _times_logarithm(first, second, np.log1p(second), result)


def _times_logarithm(first: Tensor, second: Tensor, logarithm: Any, result: Output) -> None:
    result[:] = where(np.isnan(second), second, where(first == 0, 0, first * logarithm))


@implements("BinaryCrossEntropy", domain=DOMAIN)
def binary_cross_entropy(probability: Tensor, target: Tensor, result: Output) -> None:
    """Logarithms are -100 at least, as in torch."""
    hit, missed = (maximum(x, -100.0) for x in (np.log(probability), np.log1p(-probability)))
    result[:] = (target - 1) * missed - target * hit


@implements("SignBit", domain=DOMAIN)
def sign_bit(data: Tensor, result: Output) -> None:
    """The bit itself: -0 and a negative NaN have it, and are not less than 0."""

    def element(*index: Index) -> Scalar:
        value = data.at(index)
        wide = value.dtype == dace.float64
        return bit_cast(value, dace.int64 if wide else dace.int32) < 0

    result[:] = compute(result.shape, element)


def _log_of_sum(a: Tensor, b: Tensor, base: float) -> Tensor:
    """By the larger one, so that no power overflows; infinities that are equal have no difference."""
    scale = math.log(base)
    distance = abs(a - b) if base == math.e else abs(a - b) * scale
    more = np.log1p(np.exp(-distance))
    total = maximum(a, b) + (more if base == math.e else more / scale)
    return where(np.isinf(a) & (a == b), a, total)


@implements("LogAddExp", domain=DOMAIN)
def log_add_exp(first: Tensor, second: Tensor, result: Output) -> None:
    result[:] = _log_of_sum(first, second, math.e)


@implements("LogAddExp2", domain=DOMAIN)
def log_add_exp2(first: Tensor, second: Tensor, result: Output) -> None:
    result[:] = _log_of_sum(first, second, 2)


@implements("StopGradient", domain=DOMAIN)
def stop_gradient(data: Tensor, result: Output) -> None:
    result[:] = data


@implements("HardTanh", domain=DOMAIN)
def hard_tanh(data: Tensor, low: Tensor, high: Tensor, result: Output) -> None:
    # flat at both bounds, as torch has it; NaN stays NaN
    if _is_zero(low):  # either zero is inside, and keeps its sign
        result[:] = where(data >= high, high, rectify(data))
    elif _is_zero(high):
        result[:] = where(data <= low, low, where(data > high, high, -rectify(-data)))
    else:
        result[:] = where(data <= low, low, where(data >= high, high, data))


def _is_zero(bound: Tensor) -> bool:
    return bound.value is not None and not bound.value.any()


@implements("Remainder", domain=DOMAIN)
def remainder(first: Tensor, second: Tensor, result: Output) -> None:
    r = elementwise("trunc_mod", first, second)
    result[:] = where((r != 0) & ((r < 0) != (second < 0)), r + second, r)


@implements("FloorDivide", domain=DOMAIN)
def floor_divide(first: Tensor, second: Tensor, result: Output) -> None:
    """The quotient less its remainder, so that an exact one is not rounded up; NaN where that has none."""
    if not is_float(first):
        result[:] = elementwise("floor_div", first, second)
        return
    r = elementwise("trunc_mod", first, second)
    quotient = (first - r) / second
    quotient = where((r != 0) & ((r < 0) != (second < 0)), quotient - 1, quotient)
    below = np.floor(quotient)
    nearest = where(quotient - below > 0.5, below + 1, below)
    # a quotient of zero has the sign that the division would give it
    whole = where(quotient != 0, nearest, first / second * 0)
    result[:] = where(second == 0, first / second, whole)


@implements("Atan2", domain=DOMAIN)
def atan2(first: Tensor, second: Tensor, result: Output) -> None:
    """The angle of (second, first), in all four quadrants."""
    result[:] = elementwise("atan2", first, second)


@implements("Hypot", domain=DOMAIN)
def hypot(first: Tensor, second: Tensor, result: Output) -> None:
    """sqrt(a^2 + b^2) by the larger one, so that squares do not overflow; infinite beside NaN, as in C."""
    infinite = np.isinf(first) | np.isinf(second)
    # the quotient of infinities would be a NaN in the slope of the other case
    a, b = (where(infinite, 1, abs(x)) for x in (first, second))
    large, small = where(a > b, a, b), where(a > b, b, a)
    ratio = small / large
    length = where(large == 0, large, large * np.sqrt(1 + ratio * ratio))
    result[:] = where(infinite, np.inf, where(np.isnan(a) | np.isnan(b), a + b, length))
