"""Gradients of Softmax and LogSoftmax by torch's kernels."""

from __future__ import annotations

from daceml.onnx_ops.aten.gradients import gradient_call
from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.indexing import axis_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall


def _refusal(doutput: Tensor, output: Tensor) -> str | None:
    return no_empty_operand(output) or float_operands(doutput, output)


def _call(dy: Tensor, y: Tensor, dx: Output, axis: int, logarithm: bool) -> AtenCall:
    along = axis_of(axis, y.rank)
    return gradient_call("softmax_backward", (dx,), view(dy), view(y), along, logarithm, flops=4 * y.size)


@implements("SoftmaxGrad", domain=GRADIENTS, kind="aten", name="softmax_backward", when=_refusal)
def softmax_gradient(doutput: Tensor, output: Tensor, dinput: Output, *, axis: int = -1) -> AtenCall:
    """`aten::_softmax_backward_data`."""
    return _call(doutput, output, dinput, axis, False)


@implements("LogSoftmaxGrad", domain=GRADIENTS, kind="aten", name="log_softmax_backward", when=_refusal)
def log_softmax_gradient(doutput: Tensor, output: Tensor, dinput: Output, *, axis: int = -1) -> AtenCall:
    """`aten::_log_softmax_backward_data`."""
    return _call(doutput, output, dinput, axis, True)
