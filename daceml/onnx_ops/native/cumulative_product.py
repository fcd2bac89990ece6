"""Cumulative products: each result is a product of its own, as the sums in `cumulative` are."""

from __future__ import annotations

import numpy as np

from daceml.onnx_ops.indexing import axis_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor, compute
from daceml.onnx_ops.trace import Refused
from daceml.sdfg.builder import reduced_parameters
from daceml.sdfg.scalar import Index, Scalar, cast, reduce_over

# Quadratic in the length: what the loops of CumSum allow themselves
_LONGEST = 4096


@implements("CumProd", name="triangle")
def cumulative_product(x: Tensor, axis: Tensor, y: Output, *, exclusive: int = 0, reverse: int = 0) -> None:
    if axis.value is None:
        raise Refused("axis is no constant")
    along = axis_of(int(np.asarray(axis.value).reshape(-1)[0]), x.rank)
    extent = x.shape[along]
    if isinstance(extent, int) and extent > _LONGEST:
        raise Refused(f"{extent} products of up to {extent} factors each")
    (k,) = reduced_parameters(1)

    def element(*index: Index) -> Scalar:
        place = index[along]
        first = place + exclusive if reverse else 0
        count = (extent - place if reverse else place + 1) - exclusive
        factor = x[(*index[:along], first + k, *index[along + 1 :])]
        return cast(reduce_over("prod", [k], [count], factor), factor.dtype)

    y[:] = compute(y.shape, element)
