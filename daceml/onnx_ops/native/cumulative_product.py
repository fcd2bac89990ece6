"""Cumulative products: each result is a product of its own, as the sums in `cumulative` are."""

from __future__ import annotations

from daceml.onnx_ops.native.axes import along_axis
from daceml.onnx_ops.native.cumulative import LONGEST, taken
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.builder import reduced_parameters
from daceml.sdfg.scalar import Index, Scalar, cast, reduce_over


@implements("CumProd", name="triangle")
def cumulative_product(x: Tensor, axis: Tensor, y: Output, *, exclusive: int = 0, reverse: int = 0) -> None:
    (k,) = reduced_parameters(1)

    def products(along: int) -> Tensor:
        extent = x.shape[along]
        if isinstance(extent, int) and extent > LONGEST:
            raise Refused(f"{extent} products of up to {extent} factors each")

        def element(*index: Index) -> Scalar:
            first, count = taken(index[along], extent, exclusive=exclusive, reverse=reverse)
            factor = x[(*index[:along], first + k, *index[along + 1 :])]
            return cast(reduce_over("prod", [k], [count], factor), factor.dtype)

        return compute(y.shape, element)

    y[:] = along_axis(axis, x.rank, products)
