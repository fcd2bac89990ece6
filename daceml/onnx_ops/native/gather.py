"""Reads at positions that are data. Negative positions count from the end."""

from __future__ import annotations

import dace

from daceml.onnx_ops.functions import where
from daceml.onnx_ops.indexing import axis_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor, compute
from daceml.onnx_ops.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, index_value


def position(indices: Tensor, index: tuple[Index, ...], extent: Index) -> Scalar:
    """A position read from data, from 0."""
    value = indices[index].astype(dace.int64) if indices.rank else indices.closed().at(()).astype(dace.int64)
    return where(value < 0, value + index_value(extent), value)


@implements("Gather")
def gather(data: Tensor, indices: Tensor, output: Output, *, axis: int = 0) -> None:
    axis = axis_of(axis, data.rank)
    last = axis + indices.rank

    def element(*index: Index) -> Scalar:
        found = position(indices, index[axis:last], data.shape[axis])
        return data[(*index[:axis], found, *index[last:])]

    output[:] = compute(output.shape, element)


@implements("GatherElements")
def gather_elements(data: Tensor, indices: Tensor, output: Output, *, axis: int = 0) -> None:
    axis = axis_of(axis, data.rank)

    def element(*index: Index) -> Scalar:
        found = position(indices, index, data.shape[axis])
        return data[(*index[:axis], found, *index[axis + 1 :])]

    output[:] = compute(output.shape, element)


@implements("GatherND")
def gather_nd(data: Tensor, indices: Tensor, output: Output, *, batch_dims: int = 0) -> None:
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise Refused("the number of positions in an index is symbolic")
    outer = indices.rank - 1

    def element(*index: Index) -> Scalar:
        found = [position(indices, (*index[:outer], d), data.shape[batch_dims + d]) for d in range(depth)]
        return data[(*index[:batch_dims], *found, *index[outer:])]

    output[:] = compute(output.shape, element)
