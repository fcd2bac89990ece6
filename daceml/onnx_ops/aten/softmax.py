"""Gradients of Softmax and LogSoftmax by torch's kernels."""

from __future__ import annotations

from daceml.onnx_ops.aten.gradients import gradient_call
from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.lanes import FEWEST_LANES


def _refusal(doutput: Tensor, output: Tensor, axis: int) -> str | None:
    return no_empty_operand(output) or float_operands(doutput, output) or _loops_are_better(output, axis)


def _loops_are_better(output: Tensor, axis: int) -> str | None:
    """Why generated loops, which take in what is elementwise around them, are quicker than torch's kernel, if
    they are. Source: benchmarks.blocks, row softmax."""
    row = output.shape[axis_of(axis, output.rank)]
    last = axis_of(axis, output.rank) == output.rank - 1
    if last and isinstance(row, int) and row >= FEWEST_LANES:
        return f"rows of {row} elements: generated loops take in what is elementwise around them"
    return None


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
