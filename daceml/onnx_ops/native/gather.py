"""Reads at positions that depend on data. Negative positions count from the end."""

from __future__ import annotations

from collections.abc import Sequence

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.network import IndexCheck
from daceml.sdfg.scalar import Index, Scalar, index_value


def position(indices: Tensor, index: tuple[Index, ...], extent: Index) -> Scalar:
    """A position read from data, from 0."""
    value = indices[index].astype(dace.int64) if indices.rank else indices.closed().at(()).astype(dace.int64)
    return where(value < 0, value + index_value(extent), value)


def check_positions(
    indices: Tensor,
    extent: Index,
    offset: int = 0,
    step: int = 1,
    *,
    lowest: int | None = None,
    ascending: bool = False,
) -> None:
    """Have positions compared with the extent before they are used; constants with a number are compared now.

    Args:
        offset, step, lowest, ascending: see `IndexCheck`.
    """
    if indices.value is None or not isinstance(extent, int):
        array = indices.materialize().array
        assert array is not None, "a materialized tensor is an array"
        indices.trace.checks.append(
            IndexCheck(
                array=array, offset=offset, step=step, extent=extent, lowest=lowest, ascending=ascending
            )
        )
        return
    positions = indices.value.reshape(-1)[offset::step]
    least = -extent if lowest is None else lowest
    if positions.size and not (least <= positions.min() <= positions.max() < extent):
        raise Refused(f"a constant index is outside [{least}, {extent})")
    if ascending and positions.size and (positions[0] != 0 or (np.diff(positions) < 0).any()):
        raise Refused("constant starts of segments are not ascending from 0")


def constant_position(indices: Tensor, extent: Index) -> Index | None:
    """Where a lookup reads, from 0, if it reads at one position that is known; else None.

    `x[:, 0]` and `q, k, v = qkv.unbind(0)` are such lookups: they read as a slice does, and fuse like one.
    """
    if indices.value is None or indices.value.size != 1:
        return None
    number = int(indices.value.reshape(()))
    return number if number >= 0 else extent + number


@implements("Gather")
def gather(data: Tensor, indices: Tensor, output: Output, *, axis: int = 0) -> None:
    axis = axis_of(axis, data.rank)
    check_positions(indices, data.shape[axis])
    last = axis + indices.rank
    only = constant_position(indices, data.shape[axis])

    def element(*index: Index) -> Scalar:
        found = position(indices, index[axis:last], data.shape[axis]) if only is None else only
        return data[(*index[:axis], found, *index[last:])]

    output[:] = compute(output.shape, element)


@implements("Embedding", domain="daceml")
def embedding(
    weight: Tensor, indices: Tensor, result: Output, *, padding: int = -1, by_frequency: int = 0
) -> None:
    """What the attributes say is for the gradient."""
    gather(weight, indices, result)


@implements("GatherElements")
def gather_elements(data: Tensor, indices: Tensor, output: Output, *, axis: int = 0) -> None:
    axis = axis_of(axis, data.rank)
    check_positions(indices, data.shape[axis])

    def element(*index: Index) -> Scalar:
        found = position(indices, index, data.shape[axis])
        return data[(*index[:axis], found, *index[axis + 1 :])]

    output[:] = compute(output.shape, element)


@implements("GatherPairs", domain="daceml")
def gather_pairs(
    data: Tensor,
    first: Tensor,
    second: Tensor,
    result: Output,
    *,
    perm: Sequence[int],
    inverse: Sequence[int],
) -> None:
    axis = perm[0]
    check_positions(first, data.shape[axis])
    check_positions(second, data.shape[axis + 1])
    last = axis + first.rank

    def element(*index: Index) -> Scalar:
        row = position(first, index[axis:last], data.shape[axis])
        column = position(second, index[axis:last], data.shape[axis + 1])
        return data[(*index[:axis], row, column, *index[last:])]

    result[:] = compute(result.shape, element)


@implements("GatherND")
def gather_nd(data: Tensor, indices: Tensor, output: Output, *, batch_dims: int = 0) -> None:
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise Refused("the number of positions in an index is symbolic")
    outer = indices.rank - 1
    for d in range(depth):
        check_positions(indices, data.shape[batch_dims + d], offset=d, step=depth)

    def element(*index: Index) -> Scalar:
        found = [position(indices, (*index[:outer], d), data.shape[batch_dims + d]) for d in range(depth)]
        return data[(*index[:batch_dims], *found, *index[outer:])]

    output[:] = compute(output.shape, element)
