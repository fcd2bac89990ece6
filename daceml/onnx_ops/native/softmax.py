"""Softmax and its logarithm."""

from __future__ import annotations

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor

# From this version on `axis` is one axis; before, the dimensions from `axis` on are taken as one.
_ONE_AXIS = 13


def _axes(x: Tensor, axis: int, since_version: int) -> tuple[int, ...]:
    first = axis_of(axis, x.rank)
    return (first,) if since_version >= _ONE_AXIS else tuple(range(first, x.rank))


def softmax_of(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """exp(x - max) / sum; rows of -inf only give NaN, as in torch."""
    exponential = np.exp(x - x.max(axes, keepdims=True))
    return exponential / exponential.sum(axes, keepdims=True)


@implements("Softmax")
def softmax(input: Tensor, output: Output, *, axis: int, since_version: int) -> None:
    output[:] = softmax_of(input, _axes(input, axis, since_version))


@implements("LogSoftmax")
def log_softmax(input: Tensor, output: Output, *, axis: int, since_version: int) -> None:
    axes = _axes(input, axis, since_version)
    shifted = input - input.max(axes, keepdims=True)
    output[:] = shifted - np.log(np.exp(shifted).sum(axes, keepdims=True))
