"""Cumulative sums: the gradient is the sum in the other direction."""

from __future__ import annotations

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.cumulative import cumulative_sum
from daceml.onnx_ops.tensor import Output, Tensor


def _known(axis: Tensor) -> str | None:
    return "axis is no constant" if axis.value is None else None


@vjp("CumSum", wrt="x", name="CumSumGrad", when=_known)
def cumulative_sum_vjp(axis: Tensor, dy: Tensor, dx: Output, *, exclusive: int = 0, reverse: int = 0) -> None:
    """dx[i] = sum of dy from i on; up to i where the forward sum is reversed."""
    cumulative_sum(dy, axis, dx, exclusive=exclusive, reverse=1 - reverse)
