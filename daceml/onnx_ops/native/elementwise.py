"""Arithmetic and functions of one element."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import erf, maximum, minimum, where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, elementwise, is_float
from daceml.sdfg.scalar import compute_type

# Operators with formals (X, Y), and with (input, output).
_OF_X: dict[str, Callable[[Tensor], Any]] = {
    "Abs": np.abs,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": lambda x: 1.0 / x,
    "Round": np.rint,
    "Sqrt": np.sqrt,
}
_OF_INPUT: dict[str, Callable[[Tensor], Any]] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": erf,
    "Exp": np.exp,
    "Log": np.log,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Tan": np.tan,
    "Tanh": np.tanh,
}


def _divide(a: Tensor, b: Tensor) -> Tensor:
    # Integer division truncates, as C++ does and numpy's // does not.
    return a / b if is_float(a) else elementwise("trunc_div", a, b)


_OF_A_AND_B: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _divide,
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
}
_OF_MANY: dict[str, Callable[[list[Tensor]], Any]] = {
    "Sum": lambda ts: functools.reduce(operator.add, ts),
    "Mean": lambda ts: functools.reduce(operator.add, ts) / len(ts),
    "Max": lambda ts: functools.reduce(maximum, ts),
    "Min": lambda ts: functools.reduce(minimum, ts),
}


def _register() -> None:
    def of_x(function: Callable[[Tensor], Any]) -> Callable[..., None]:
        def elementwise(X: Tensor, Y: Output) -> None:
            Y[:] = function(X)

        return elementwise

    def of_input(function: Callable[[Tensor], Any]) -> Callable[..., None]:
        def elementwise(input: Tensor, output: Output) -> None:
            output[:] = function(input)

        return elementwise

    def of_a_and_b(function: Callable[[Tensor, Tensor], Any]) -> Callable[..., None]:
        def elementwise(A: Tensor, B: Tensor, C: Output) -> None:
            C[:] = function(A, B)

        return elementwise

    for op, function in _OF_X.items():
        implements(op)(of_x(function))
    for op, function in _OF_INPUT.items():
        implements(op)(of_input(function))
    for op, function in _OF_A_AND_B.items():
        implements(op)(of_a_and_b(function))


_register()


@implements("Sum")
def sum_of_all(data_0: tuple[Tensor, ...], sum: Output) -> None:
    sum[:] = _OF_MANY["Sum"](list(data_0))


@implements("Mean")
def mean_of_all(data_0: tuple[Tensor, ...], mean: Output) -> None:
    mean[:] = _OF_MANY["Mean"](list(data_0))


@implements("Max")
def max_of_all(data_0: tuple[Tensor, ...], max: Output) -> None:
    max[:] = _OF_MANY["Max"](list(data_0))


@implements("Min")
def min_of_all(data_0: tuple[Tensor, ...], min: Output) -> None:
    min[:] = _OF_MANY["Min"](list(data_0))


@implements("Pow")
def power(X: Tensor, Y: Tensor, Z: Output) -> None:
    if is_float(X) or not is_float(Y):
        Z[:] = X ** Y.astype(compute_type(X.dtype))
    else:
        # An integer to a fractional power is computed as a fraction and cut back to the base's type.
        Z[:] = (X.astype(Y.dtype) ** Y).astype(X.dtype)


@implements("Mod")
def modulo(A: Tensor, B: Tensor, C: Output, *, fmod: int = 0) -> None:
    # fmod=1 takes the sign of the dividend, as C; fmod=0 that of the divisor, as Python.
    C[:] = elementwise("trunc_mod" if fmod else "floor_mod", A, B)


@implements("BitShift")
def shift(X: Tensor, Y: Tensor, Z: Output, *, direction: str) -> None:
    Z[:] = X << Y if direction == "LEFT" else X >> Y


@implements("Clip")
def clip(input: Tensor, min: Tensor | None, max: Tensor | None, output: Output) -> None:
    # Bounds are rank-0 tensors, or attributes before opset 11; NaN stays NaN.
    result = input
    if min is not None:
        low = min.astype(compute_type(input.dtype)).reshape(())
        result = where(result < low, low, result) if _is_number(min) else maximum(result, low)
    if max is not None:
        high = max.astype(compute_type(input.dtype)).reshape(())
        result = where(result > high, high, result) if _is_number(max) else minimum(result, high)
    output[:] = result


def _is_number(bound: Tensor) -> bool:
    """Whether a bound is known, and bounds anything: its derivative is then torch's, 1 for x at the bound."""
    return bound.value is not None and not bool(np.isnan(bound.value).any())


@implements("IsInf")
def is_infinite(X: Tensor, Y: Output, *, detect_negative: int = 1, detect_positive: int = 1) -> None:
    infinite: Any = np.isinf(X)
    if not detect_negative:
        infinite = infinite & (X > 0)
    if not detect_positive:
        infinite = infinite & (X < 0)
    Y[:] = infinite


@implements("Where")
def select(condition: Tensor, X: Tensor, Y: Tensor, output: Output) -> None:
    output[:] = where(condition, X, Y)
