"""Cumulative sums by torch's scan."""

from __future__ import annotations

import dace
import numpy as np

from daceml.onnx_ops.aten.gradients import gradient_call
from daceml.onnx_ops.aten.views import GRADIENTS, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.scalar import HALF


def _refusal(x: Tensor, axis: Tensor, exclusive: int, reverse: int) -> str | None:
    if axis.value is None:
        return "axis is not constant"
    if exclusive or reverse:
        return "torch sums forward, and includes each element in its own sum"
    if x.dtype in HALF or x.dtype == dace.bool_:
        return f"torch's scan of {x.dtype.to_string()} rounds every partial sum"
    return no_empty_operand(x)


@implements("CumSum", kind="aten", name="cumsum", when=_refusal)
def cumulative_sum(x: Tensor, axis: Tensor, y: Output, *, exclusive: int = 0, reverse: int = 0) -> AtenCall:
    """Forward of `aten::cumsum`, which adds float32 numbers in float64."""
    along = axis_of(int(np.asarray(axis.value).reshape(-1)[0]), x.rank)
    return AtenCall(function="cumsum", arguments=(view(x), along), writes=y.name, fresh=True, flops=x.size)


def _gradient_refusal(dy: Tensor, axis: Tensor, exclusive: int, reverse: int) -> str | None:
    return _refusal(dy, axis, exclusive, reverse)


@implements("CumSumGrad", domain=GRADIENTS, kind="aten", name="cumsum_backward", when=_gradient_refusal)
def cumulative_sum_gradient(
    axis: Tensor, dy: Tensor, dx: Output, *, exclusive: int = 0, reverse: int = 0
) -> AtenCall:
    """Flipped, summed and flipped back."""
    along = axis_of(int(np.asarray(axis.value).reshape(-1)[0]), dy.rank)
    return gradient_call("cumsum_backward", (dx,), view(dy), along, flops=dy.size)
