"""Tensors that say where something is: the numbers that they are made of collect what came to them."""

from __future__ import annotations

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.indicator import is_hot
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.sdfg.scalar import Index, Scalar, index_value, literal


@vjp("OneHot")
def one_hot_vjp(
    indices: Tensor, doutput: Tensor, dindices: Output | None, dvalues: Output | None, *, axis: int = -1
) -> None:
    """dvalues[1] = sum of dY where the position is the index, dvalues[0] = of all others; dindices = 0."""
    if dindices is not None:
        dindices[:] = full(dindices.shape, 0, dindices.dtype)
    if dvalues is None:
        return
    axis = axis_of(axis, doutput.rank)
    zero = literal(0, doutput.dtype)

    def element(which: Index) -> Scalar:
        def term(*index: Index) -> Scalar:
            hot = is_hot(indices, index, axis, doutput.shape[axis])
            return where(hot == (index_value(which) == 1), doutput[index], zero)

        return sum_over(doutput.shape, term)

    dvalues[:] = compute((2,), element)
