"""Sums and maxima over segments: each row gets the gradient of its segment, found by bisection."""

from __future__ import annotations

import dace

from daceml.autodiff.rules.gather import zeros
from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.segments import DOMAIN
from daceml.onnx_ops.native.gather import check_positions, position
from daceml.onnx_ops.native.segments import reduced
from daceml.onnx_ops.tracing.functions import minimum, where
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.scatter import scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.sdfg.scalar import Index, Scalar, index_value, literal

# Steps of a bisection over a number of segments that is not known: fewer than 2^31 of them
_MOST_STEPS = 31


def _segment_of(offsets: Tensor, count: Index) -> Tensor:
    """The segment of each of `count` positions: the last one that starts at it or before."""
    check_positions(offsets, count + 1, lowest=0, ascending=True)
    segments = offsets.shape[0]
    steps = max(segments - 1, 0).bit_length() if isinstance(segments, int) else _MOST_STEPS
    last = index_value(segments - 1)

    def element(row: Index) -> Scalar:
        segment = literal(0, dace.int64)
        for step in reversed(range(steps)):
            candidate = segment + literal(1 << step, dace.int64)
            start = offsets[(minimum(candidate, last),)].astype(dace.int64)
            here = (candidate <= last) & (start <= index_value(row))
            segment = where(here, candidate, segment)
        return segment

    return compute((count,), element).materialize()


@vjp("EmbeddingBagSum", wrt="weight", name="EmbeddingBagSumGrad", domain=DOMAIN)
def embedding_bag_sum_vjp(indices: Tensor, offsets: Tensor, dresult: Tensor, dweight: Output) -> None:
    """dweight[indices[t]] += dY[bag of t]."""
    check_positions(indices, dweight.shape[0], lowest=0)
    held, extent = indices.closed(), dweight.shape[0]
    count = indices.shape[0]
    if same(offsets.shape[0], 0):
        dweight[:] = 0
        return
    segment = _segment_of(offsets, count)
    rows = compute((count, dresult.shape[1]), lambda t, d: dresult[(segment[(t,)], d)])
    places = [lambda index: position(held, (index[0],), extent), 1]
    scatter(dweight, zeros(dweight), rows, places, "add")


@vjp("SegmentSum", wrt="rows", name="SegmentSumGrad", domain=DOMAIN)
def segment_sum_vjp(offsets: Tensor, dresult: Tensor, drows: Output) -> None:
    """drows[t] = dY[segment of t]."""
    if same(offsets.shape[0], 0):
        drows[:] = 0
        return
    segment = _segment_of(offsets, drows.shape[0])
    drows[:] = compute(drows.shape, lambda t, d: dresult[(segment[(t,)], d)])


@vjp("SegmentMax", wrt="rows", name="SegmentMaxGrad", domain=DOMAIN)
def segment_max_vjp(rows: Tensor, offsets: Tensor, result: Tensor, dresult: Tensor, drows: Output) -> None:
    """Only the first of equal maxima gets the gradient, as in torch's bags."""
    if same(offsets.shape[0], 0):
        drows[:] = 0
        return
    count = rows.shape[0]
    segment = _segment_of(offsets, count)
    past = index_value(count)

    def place(position: Scalar, segment: Index, column: Index) -> Scalar:
        largest = rows[(position, column)] == result[(segment, column)]
        return where(largest, position, past)

    first = reduced("min", offsets, count, dresult.shape, place).materialize()

    def element(t: Index, d: Index) -> Scalar:
        here = segment[(t,)]
        value = dresult[(here, d)]
        return where(first[(here, d)] == index_value(t), value, literal(0, value.dtype))

    drows[:] = compute(drows.shape, element)
