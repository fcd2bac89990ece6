"""The standard's optimisers: one step of Adagrad, Adam and Momentum, for any number of tensors.

Operands of a node are all tensors, then all their gradients, then what the optimiser keeps of each, and so
are its results. R is the learning rate, T the number of steps before this one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Scalar, literal

_DOMAIN = "ai.onnx.preview.training"


def _rows(inputs: tuple[Tensor, ...], parts: int) -> Iterator[tuple[Tensor, ...]]:
    """For each tensor: itself, its gradient, and what is kept of it."""
    if len(inputs) % parts:
        raise Refused(f"{len(inputs)} operands are not {parts} for each tensor")
    count = len(inputs) // parts
    return zip(*(inputs[p * count : (p + 1) * count] for p in range(parts)), strict=True)


def _targets(outputs: tuple[Output, ...], parts: int) -> Iterator[tuple[Output, ...]]:
    count = len(outputs) // parts
    return zip(*(outputs[p * count : (p + 1) * count] for p in range(parts)), strict=True)


def _number(tensor: Tensor, like: Tensor) -> Scalar:
    """A scalar operand, in the type of a tensor."""
    value: Scalar = tensor.closed().at((0,) * tensor.rank)
    return value.astype(like.dtype)


@implements("Adagrad", domain=_DOMAIN)
def adagrad(
    R: Tensor,
    T: Tensor,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Output, ...],
    *,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> None:
    for (x, g, h), (new_x, new_h) in zip(_rows(inputs, 3), _targets(outputs, 2), strict=True):
        rate = _number(R, x) / (1.0 + _number(T, x) * decay_factor)
        gradient = x * norm_coefficient + g
        squares = h + gradient * gradient
        new_h[:] = squares
        new_x[:] = x - gradient * rate / (np.sqrt(squares) + epsilon)


@implements("Adam", domain=_DOMAIN)
def adam(
    R: Tensor,
    T: Tensor,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Output, ...],
    *,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> None:
    for (x, g, v, h), (new_x, new_v, new_h) in zip(_rows(inputs, 4), _targets(outputs, 3), strict=True):
        gradient = x * norm_coefficient + g
        mean = v * alpha + gradient * (1.0 - alpha)
        squares = h * beta + gradient * gradient * (1.0 - beta)
        rate, step = _number(R, x), _number(T, x)
        corrected = rate * np.sqrt(1.0 - beta**step) / (1.0 - alpha**step)
        moved = x - mean * where(step > 0.0, corrected, rate) / (np.sqrt(squares) + epsilon)
        new_v[:], new_h[:] = mean, squares
        new_x[:] = moved * (1.0 - norm_coefficient_post)


@implements("Momentum", domain=_DOMAIN)
def momentum(
    R: Tensor,
    T: Tensor,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Output, ...],
    *,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> None:
    if mode not in ("standard", "nesterov"):
        raise Refused(f"there is no mode {mode!r}")
    for (x, g, v), (new_x, new_v) in zip(_rows(inputs, 3), _targets(outputs, 2), strict=True):
        gradient = x * norm_coefficient + g
        # the first step takes all of the gradient
        step = _number(T, x)
        share = where(step > 0.0, literal(beta, step.dtype), 1.0)
        kept = v * alpha + gradient * share
        new_v[:] = kept
        new_x[:] = x - (gradient + kept * alpha if mode == "nesterov" else kept) * _number(R, x)
