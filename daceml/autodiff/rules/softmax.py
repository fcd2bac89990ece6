"""Softmax and LogSoftmax: both need their result only, so that the input can be freed.

Before opset 13 the dimensions from `axis` on are taken as one; those versions have rules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Tensor

_ONE_AXIS = 13


def _one_axis(since_version: int | None) -> str | None:
    if since_version is not None and since_version < _ONE_AXIS:
        return "before opset 13 the dimensions from `axis` on are taken as one"
    return None


def _flat(since_version: int | None) -> str | None:
    return None if _one_axis(since_version) else "from opset 13 on `axis` is one axis"


def _from(axis: int, rank: int) -> Sequence[int]:
    return range(axis_of(axis, rank), rank)


def _softmax(dy: Tensor, y: Tensor, axes: int | Sequence[int]) -> Tensor:
    return y * (dy - (dy * y).sum(axes, keepdims=True))


def _log_softmax(dy: Tensor, y: Tensor, axes: int | Sequence[int]) -> Tensor:
    return dy - np.exp(y) * dy.sum(axes, keepdims=True)


@vjp("Softmax", when=_one_axis)
def softmax_vjp(doutput: Tensor, output: Tensor, *, axis: int = -1) -> Tensor:
    """dX = Y (dY - sum(dY Y))."""
    return _softmax(doutput, output, axis)


@vjp("LogSoftmax", when=_one_axis)
def log_softmax_vjp(doutput: Tensor, output: Tensor, *, axis: int = -1) -> Tensor:
    """dX = dY - exp(Y) sum(dY)."""
    return _log_softmax(doutput, output, axis)


@vjp("Softmax", name="SoftmaxFlatGrad", when=_flat)
def flat_softmax_vjp(doutput: Tensor, output: Tensor, *, axis: int = 1) -> Tensor:
    """The same over all dimensions from `axis` on."""
    return _softmax(doutput, output, _from(axis, output.rank))


@vjp("LogSoftmax", name="LogSoftmaxFlatGrad", when=_flat)
def flat_log_softmax_vjp(doutput: Tensor, output: Tensor, *, axis: int = 1) -> Tensor:
    """The same over all dimensions from `axis` on."""
    return _log_softmax(doutput, output, _from(axis, output.rank))
