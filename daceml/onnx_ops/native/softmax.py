"""Softmax, its logarithm, and Hardmax."""

from __future__ import annotations

import dace
import numpy as np

from daceml.onnx_ops.indexing import axis_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor
from daceml.onnx_ops.trace import Refused
from daceml.sdfg.sizes import product

# Up to opset 12 the operators work on a matrix: the dimensions from `axis` on are one.


def _as_axes(x: Tensor, axis: int, flat: bool) -> tuple[int, ...]:
    first = axis_of(axis, x.rank)
    return tuple(range(first, x.rank)) if flat else (first,)


def softmax_of(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """exp(x - max) / sum; rows of -inf only give NaN, as in torch."""
    exponential = np.exp(x - x.max(axes, keepdims=True))
    return exponential / exponential.sum(axes, keepdims=True)


def log_softmax_of(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """x - max - log(sum(exp(x - max)))."""
    shifted = x - x.max(axes, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axes, keepdims=True))


@implements("Softmax")
def softmax(input: Tensor, output: Output, *, axis: int = -1) -> None:
    output[:] = softmax_of(input, _as_axes(input, axis, flat=False))


@implements("LogSoftmax")
def log_softmax(input: Tensor, output: Output, *, axis: int = -1) -> None:
    output[:] = log_softmax_of(input, _as_axes(input, axis, flat=False))


@implements("Hardmax")
def hardmax(input: Tensor, output: Output, *, axis: int = -1) -> None:
    raise Refused("not written yet")
