"""Activation functions; each is finite and accurate wherever its value is."""

from __future__ import annotations

import math

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import erf, maximum, rectify, sigmoid, where
from daceml.onnx_ops.tracing.tensor import Output, Tensor


def softplus_of(x: Tensor) -> Tensor:
    """log(1 + exp(x)), finite for every finite x."""
    return maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@implements("Relu")
def relu(X: Tensor, Y: Output) -> None:
    # not a maximum, whose derivative at 0 is another one; NaN stays NaN, and -0.0 is -0.0
    Y[:] = rectify(X)


@implements("LeakyRelu")
def leaky_relu(X: Tensor, Y: Output, *, alpha: float = 0.01) -> None:
    Y[:] = where(X > 0, X, alpha * X)


@implements("PRelu")
def prelu(X: Tensor, slope: Tensor, Y: Output) -> None:
    Y[:] = where(X > 0, X, slope * X)


@implements("ThresholdedRelu")
def thresholded_relu(X: Tensor, Y: Output, *, alpha: float = 1.0) -> None:
    Y[:] = where(alpha < X, X, 0)


def _below_zero(x: Tensor) -> Tensor:
    """0 where x is positive: what is selected against must not be infinite, or its derivative 0 is NaN."""
    return where(x > 0, 0, x)


@implements("Elu")
def elu(X: Tensor, Y: Output, *, alpha: float = 1.0) -> None:
    Y[:] = where(X > 0, X, alpha * np.expm1(_below_zero(X)))


@implements("Selu")
def selu(
    X: Tensor,
    Y: Output,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> None:
    Y[:] = gamma * where(X > 0, X, alpha * np.expm1(_below_zero(X)))


@implements("Celu")
def celu(X: Tensor, Y: Output, *, alpha: float = 1.0) -> None:
    Y[:] = where(X > 0, X, alpha * np.expm1(_below_zero(X) / alpha))


@implements("Sigmoid")
def logistic(X: Tensor, Y: Output) -> None:
    Y[:] = sigmoid(X)


@implements("HardSigmoid")
def hard_sigmoid(X: Tensor, Y: Output, *, alpha: float = 0.2, beta: float = 0.5) -> None:
    Y[:] = _between_0_and_1(alpha * X + beta)


def _between_0_and_1(x: Tensor) -> Tensor:
    """Flat at both ends, where torch has no slope either; NaN stays NaN."""
    return where(x <= 0, 0, where(x >= 1, 1, x))


@implements("HardSwish")
def hard_swish(X: Tensor, Y: Output) -> None:
    Y[:] = X * _between_0_and_1(X / 6.0 + 0.5)


@implements("Softplus")
def softplus(X: Tensor, Y: Output) -> None:
    Y[:] = softplus_of(X)


@implements("Softsign")
def softsign(input: Tensor, output: Output) -> None:
    output[:] = input / (1 + np.abs(input))


@implements("Mish")
def mish(X: Tensor, Y: Output) -> None:
    Y[:] = X * np.tanh(softplus_of(X))


@implements("Swish")
def swish(X: Tensor, Y: Output, *, alpha: float = 1.0) -> None:
    Y[:] = X * sigmoid(X if alpha == 1.0 else alpha * X)


@implements("Gelu")
def gelu(X: Tensor, Y: Output, *, approximate: str = "none") -> None:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (X + 0.044715 * (X * X * X))
        Y[:] = 0.5 * X * (1 + np.tanh(inner))
    else:
        Y[:] = 0.5 * X * (1 + erf(X * math.sqrt(0.5)))


@implements("Shrink")
def shrink(input: Tensor, output: Output, *, bias: float = 0.0, lambd: float = 0.5) -> None:
    output[:] = where(input < -lambd, input + bias, where(input > lambd, input - bias, 0))
