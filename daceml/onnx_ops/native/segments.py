"""Sums and maxima over segments: a loop from each offset to the next, whose length is data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import dace

from daceml.onnx_ops.functions import minimum, where
from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.segments import DOMAIN
from daceml.onnx_ops.tensor import Output, Tensor, compute
from daceml.sdfg.builder import reduced_parameters
from daceml.sdfg.scalar import Index, Scalar, cast, compute_type, index_value, reduce_over

Row = Callable[[Scalar, Index], Scalar]


def _reduced(
    operator: Literal["sum", "max"], offsets: Tensor, count: Index, result: Output, row: Row
) -> None:
    """`row(position, column)` reduced over each segment of positions below `count`."""
    check_positions(offsets, count + 1, lowest=0, ascending=True)
    segments = offsets.shape[0]
    (k,) = reduced_parameters(1)

    def element(segment: Index, column: Index) -> Scalar:
        last = index_value(segments - 1)
        start = offsets[(segment,)].astype(dace.int64)
        # The last segment ends with the positions; there is no offset behind its own.
        following = offsets[(minimum(index_value(segment + 1), last),)].astype(dace.int64)
        end = where(index_value(segment) == last, index_value(count), following)
        total = reduce_over(operator, [k], [end - start], row(start + index_value(k), column))
        return cast(total, compute_type(result.dtype))

    result[:] = compute(result.shape, element)


@implements("EmbeddingBagSum", domain=DOMAIN)
def embedding_bag_sum(weight: Tensor, indices: Tensor, offsets: Tensor, result: Output) -> None:
    check_positions(indices, weight.shape[0], lowest=0)

    def row(position: Scalar, column: Index) -> Scalar:
        return weight[(indices[(position,)].astype(dace.int64), column)]

    _reduced("sum", offsets, indices.shape[0], result, row)


@implements("SegmentSum", domain=DOMAIN)
def segment_sum(rows: Tensor, offsets: Tensor, result: Output) -> None:
    _reduced("sum", offsets, rows.shape[0], result, lambda position, column: rows[(position, column)])


@implements("SegmentMax", domain=DOMAIN)
def segment_max(rows: Tensor, offsets: Tensor, result: Output) -> None:
    _reduced("max", offsets, rows.shape[0], result, lambda position, column: rows[(position, column)])
