"""Elementwise operators of the domain "daceml", by torch's formulas."""

from __future__ import annotations

import numpy as np

from daceml.onnx_ops.functions import where
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor, elementwise, is_float
from daceml.onnx_ops.torch_kernels import DOMAIN


@implements("Log1p", domain=DOMAIN)
def log1p(data: Tensor, result: Output) -> None:
    result[:] = elementwise("log1p", data)


@implements("Expm1", domain=DOMAIN)
def expm1(data: Tensor, result: Output) -> None:
    result[:] = elementwise("expm1", data)


@implements("StopGradient", domain=DOMAIN)
def stop_gradient(data: Tensor, result: Output) -> None:
    result[:] = data


@implements("HardTanh", domain=DOMAIN)
def hard_tanh(data: Tensor, low: Tensor, high: Tensor, result: Output) -> None:
    # flat at both bounds, as torch has it; NaN stays NaN
    result[:] = where(data <= low, low, where(data >= high, high, data))


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
    a, b = abs(first), abs(second)
    large, small = where(a > b, a, b), where(a > b, b, a)
    ratio = small / large
    length = where(large == 0, large, large * np.sqrt(1 + ratio * ratio))
    infinite = np.isinf(a) | np.isinf(b)
    result[:] = where(infinite, np.inf, where(np.isnan(a) | np.isnan(b), a + b, length))
