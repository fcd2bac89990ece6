"""Reductions whose formula has no derivative where torch gives one."""

from __future__ import annotations

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.reduction import constant_axes
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axes_of
from daceml.onnx_ops.tracing.tensor import Tensor


def _reduces(axes: Tensor | None, noop_with_empty_axes: int | None, since_version: int) -> str | None:
    if since_version < 18:
        return "before opset 18 axes are an attribute"
    if axes is not None and axes.value is None:
        return "axes is not constant"
    return "it reduces nothing" if noop_with_empty_axes and constant_axes(axes) is None else None


@vjp("ReduceL2", wrt="data", name="ReduceL2Grad", when=_reduces)
def reduce_l2_vjp(
    dreduced: Tensor, data: Tensor, reduced: Tensor, axes: Tensor | None, *, keepdims: int = 1
) -> Tensor:
    """dX = X dY / Y; 0 where all elements are 0."""
    share = where(reduced == 0, 0, dreduced / reduced)
    if not keepdims:
        share = share.expand_dims(*axes_of(constant_axes(axes), data.rank))
    return data * share
