"""Cumulative sums: each result is a sum of its own, so that results are independent of each other.

That is quadratic in the length; a scan would carry a value from one result to the next, which no map does.
"""

from __future__ import annotations

from daceml.onnx_ops.native.axes import along_axis
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar

LONGEST = 4096
"""16 times the work of a scan that has this many steps to wait for."""


@implements("CumSum", name="triangle")
def cumulative_sum(x: Tensor, axis: Tensor, y: Output, *, exclusive: int = 0, reverse: int = 0) -> None:
    def sums(along: int) -> Tensor:
        extent = x.shape[along]
        if isinstance(extent, int) and extent > LONGEST:
            raise Refused(f"{extent} sums of up to {extent} terms each")

        def element(*index: Index) -> Scalar:
            first, count = taken(index[along], extent, exclusive=exclusive, reverse=reverse)
            return sum_over((count,), lambda k: x[(*index[:along], first + k, *index[along + 1 :])])

        return compute(y.shape, element)

    y[:] = along_axis(axis, x.rank, sums)


def taken(place: Index, extent: Index, *, exclusive: int, reverse: int) -> tuple[Index, Index]:
    """The first element that a place's result takes, and how many."""
    first = place + exclusive if reverse else 0
    return first, (extent - place if reverse else place + 1) - exclusive
