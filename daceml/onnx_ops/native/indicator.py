"""One-hot vectors: of positions, and of the largest element."""

from __future__ import annotations

from collections.abc import Sequence

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, is_float, min_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, identity, index_value, literal
from daceml.sdfg.sizes import product

# From this version on `axis` is one axis; before, the dimensions from `axis` on are taken as one.
_ONE_AXIS = 13


@implements("OneHot")
def one_hot(indices: Tensor, depth: Tensor, values: Tensor, output: Output, *, axis: int = -1) -> None:
    """values[1] where the position is the index, else values[0]; an index outside is nowhere."""
    axis = axis_of(axis, output.rank)

    def element(*index: Index) -> Scalar:
        return where(is_hot(indices, index, axis, output.shape[axis]), values[(1,)], values[(0,)])

    output[:] = compute(output.shape, element)


def is_hot(indices: Tensor, index: Sequence[Index], axis: int, extent: Index) -> Scalar:
    """Whether an element of a one-hot tensor is where its index says; negative ones count from the end."""
    found = indices.closed().at((*index[:axis], *index[axis + 1 :])).astype(dace.int64)
    return where(found < 0, found + index_value(extent), found) == index_value(index[axis])


@implements("Hardmax")
def hardmax(input: Tensor, output: Output, *, axis: int, since_version: int) -> None:
    """1 at the first largest element along the axis, else 0; the first NaN counts as the largest."""
    first = axis_of(axis, input.rank)
    x = input
    if since_version < _ONE_AXIS and first != input.rank - 1:
        x = input.reshape((*input.shape[:first], product(input.shape[first:])))
    extent = x.shape[first]
    if same(extent, 0):
        return
    best = x.max(first, keepdims=True).materialize()
    unit = (*x.shape[:first], 1, *x.shape[first + 1 :])

    def position(*index: Index) -> Scalar:
        def candidate(k: Index) -> Scalar:
            value = x[(*index[:first], k, *index[first + 1 :])]
            here = value == best[index]
            here = here | np.isnan(value) if is_float(x) else here
            return where(here, index_value(k), identity("min", dace.int64))

        return min_over((extent,), candidate)

    place = compute(unit, position).materialize()

    def element(*index: Index) -> Scalar:
        chosen = place[(*index[:first], 0, *index[first + 1 :])] == index_value(index[first])
        return where(chosen, literal(1, output.dtype), literal(0, output.dtype))

    if x.rank != 0 and input.rank == 0:
        raise Refused("the largest of a number")
    output[:] = compute(x.shape, element).reshape(output.shape)
