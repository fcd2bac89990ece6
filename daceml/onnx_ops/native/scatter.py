"""Writes at positions that depend on data. Negative positions count from the end; duplicates run in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dace

from daceml.onnx_ops.native.gather import check_positions, position
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import Position, axis_of, same
from daceml.onnx_ops.tracing.scatter import Place, scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, index_value
from daceml.sdfg.scatter import Operator

_OPERATORS: dict[str, Operator] = {r: r for r in ("none", "add", "mul", "max", "min")}  # pyright: ignore[reportAssignmentType]


def _operator(reduction: str, data: Tensor) -> Operator:
    if reduction not in _OPERATORS:
        raise Refused(f"there is no reduction {reduction!r}")
    if data.dtype == dace.bool_ and reduction in ("add", "mul"):
        raise Refused(f"reduction {reduction} of booleans")
    return _OPERATORS[reduction]


def _elements(
    data: Tensor, indices: Tensor, updates: Tensor, output: Output, axis: int, reduction: str
) -> None:
    axis = axis_of(axis, data.rank)
    for d, (part, whole) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if d != axis and isinstance(part, int) and isinstance(whole, int) and part > whole:
            raise Refused(f"indices have {part} elements along dimension {d}, data has {whole}")
    check_positions(indices, data.shape[axis])
    held = indices.closed()

    def along(index: tuple[Index, ...]) -> Position:
        return position(held, index, data.shape[axis])

    places: list[Place] = [along if d == axis else d for d in range(data.rank)]
    if any(not same(a, b) for a, b in zip(indices.shape, updates.shape, strict=True)):
        updates = updates[tuple(slice(0, extent) for extent in indices.shape)]
    scatter(output, data, updates, places, _operator(reduction, data))


@implements("ScatterElements")
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, output: Output, *, axis: int = 0, reduction: str = "none"
) -> None:
    _elements(data, indices, updates, output, axis, reduction)


@implements("Scatter")
def scatter_before_11(
    data: Tensor, indices: Tensor, updates: Tensor, output: Output, *, axis: int = 0
) -> None:
    _elements(data, indices, updates, output, axis, "none")


@implements("ScatterND")
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, output: Output, *, reduction: str = "none"
) -> None:
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise Refused("the number of positions in an index is symbolic")
    outer = indices.rank - 1
    for d in range(depth):
        check_positions(indices, data.shape[d], offset=d, step=depth)
    held = indices.closed()

    def along(d: int) -> Place:
        return lambda index: position(held, (*index[:outer], d), data.shape[d])

    inner = [outer + n for n in range(data.rank - depth)]
    scatter(output, data, updates, [*map(along, range(depth)), *inner], _operator(reduction, data))


@implements("TensorScatter")
def tensor_scatter(
    past_cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None,
    present_cache: Output,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> None:
    axis = axis_of(axis, past_cache.rank)
    if axis == 0:
        raise Refused("axis 0 is the batch")
    length, count = past_cache.shape[axis], update.shape[axis]
    if mode not in ("linear", "circular"):
        raise Refused(f"there is no mode {mode!r}")
    if isinstance(length, int) and isinstance(count, int) and count > length:
        raise Refused(f"an update of {count} positions in a cache of {length}")
    if write_indices is not None:
        last = length if mode == "circular" else length - count + 1
        check_positions(write_indices, last, lowest=0)
    along = cache_position(write_indices, axis, length)
    places: list[Place] = [along if d == axis else d for d in range(past_cache.rank)]
    scatter(present_cache, past_cache, update, places)


def cache_position(
    write_indices: Tensor | None, axis: int, length: Index
) -> Callable[[Sequence[Index]], Position]:
    """Where in a cache of some length, along its axis, an element of an update is written."""

    def along(index: Sequence[Index]) -> Position:
        if write_indices is None:
            return index[axis]
        place = write_indices[(index[0],)].astype(dace.int64) + index_value(index[axis])
        return where(place < index_value(length), place, place - index_value(length))

    return along
