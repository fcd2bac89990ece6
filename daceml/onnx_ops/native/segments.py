"""Sums and maxima over segments: a loop from each offset to the next, whose length is data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import dace

from daceml.onnx_ops.domain.segments import DOMAIN
from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import minimum, where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.sdfg.builder import reduced_parameters
from daceml.sdfg.scalar import DType, Index, Scalar, cast, compute_type, index_value, reduce_over

# A row's contribution: its position, the segment, the column.
Row = Callable[[Scalar, Index, Index], Scalar]


def reduced(
    operator: Literal["sum", "max", "min"],
    offsets: Tensor,
    count: Index,
    shape: Sequence[Index],
    row: Row,
    dtype: DType | None = None,
) -> Tensor:
    """`row(position, segment, column)` reduced over each segment of positions below `count`."""
    check_positions(offsets, count + 1, lowest=0, ascending=True)
    segments = offsets.shape[0]
    (k,) = reduced_parameters(1)

    def element(segment: Index, column: Index) -> Scalar:
        last = index_value(segments - 1)
        start = offsets[(segment,)].astype(dace.int64)
        # The last segment ends with the positions; there is no offset behind its own.
        following = offsets[(minimum(index_value(segment + 1), last),)].astype(dace.int64)
        end = where(index_value(segment) == last, index_value(count), following)
        total = reduce_over(operator, [k], [end - start], row(start + index_value(k), segment, column))
        return total if dtype is None else cast(total, compute_type(dtype))

    return compute(shape, element)


@implements("EmbeddingBagSum", domain=DOMAIN)
def embedding_bag_sum(weight: Tensor, indices: Tensor, offsets: Tensor, result: Output) -> None:
    check_positions(indices, weight.shape[0], lowest=0)

    def row(position: Scalar, _: Index, column: Index) -> Scalar:
        return weight[(indices[(position,)].astype(dace.int64), column)]

    result[:] = reduced("sum", offsets, indices.shape[0], result.shape, row, result.dtype)


def _row_of(rows: Tensor) -> Row:
    return lambda position, _, column: rows[(position, column)]


@implements("SegmentSum", domain=DOMAIN)
def segment_sum(rows: Tensor, offsets: Tensor, result: Output) -> None:
    result[:] = reduced("sum", offsets, rows.shape[0], result.shape, _row_of(rows), result.dtype)


@implements("SegmentMax", domain=DOMAIN)
def segment_max(rows: Tensor, offsets: Tensor, result: Output) -> None:
    result[:] = reduced("max", offsets, rows.shape[0], result.shape, _row_of(rows), result.dtype)
