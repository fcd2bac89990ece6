"""Reads at given indices, and triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.memory_views import strided_places
from daceml.frontend.onnx_export.translations import UntranslatableError, indexing_functions, translates
from daceml.frontend.onnx_export.translations.emit import (
    Value,
    array,
    cast,
    full,
    op,
    rank_of,
    sizes_of,
    typed,
)
from daceml.frontend.onnx_export.translations.torch_kernels import kernel


@translates("aten.index_select.default")
def index_select(self: Value, dim: int, index: Value) -> Value:
    if rank_of(index) == 0:
        raise UntranslatableError("a scalar index")
    if rank_of(self) == 0:  # only its own one number can be chosen
        return op.Identity(self)
    return op.Gather(self, index, axis=dim)


@translates("aten.gather.default")
def gather(self: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if rank_of(index) == 0:
        raise UntranslatableError("a scalar index")
    return op.GatherElements(self, index, axis=dim)


@translates("aten.index.Tensor")
def index(self: Value, indices: Sequence[Value | None]) -> Value:
    """x[..., i, ...] with one integer index: Gather along its dimension; x[..., i, j, ...]: GatherPairs."""
    given = [(axis, entry) for axis, entry in enumerate(indices) if entry is not None]
    if len(given) > 2 or any(e.dtype not in (ir.DataType.INT64, ir.DataType.INT32) for _, e in given):
        raise UntranslatableError("more than two index tensors, or a mask")
    axis, entry = given[0]
    if len(given) == 1:
        return op.Gather(self, entry, axis=axis)
    next_axis, other = given[1]
    if next_axis != axis + 1 or sizes_of(entry) != sizes_of(other) or entry.dtype != other.dtype:
        raise UntranslatableError("two index tensors of different shapes, or of dimensions that are apart")
    rank, spread = rank_of(self), rank_of(entry)
    kept = [d for d in range(rank) if d not in (axis, next_axis)]
    # GatherND's result has the dimensions of the index first, then those that are kept
    inverse = [*range(spread, spread + axis), *range(spread), *range(spread + axis, spread + len(kept))]
    functions: Any = indexing_functions  # onnxscript types them as the functions that they are made of
    return functions.GatherPairs(self, entry, other, perm=[axis, next_axis, *kept], inverse=inverse)


@translates("aten.tril.default")
def tril(self: Value, diagonal: int = 0) -> Value:
    return op.Trilu(self, array(np.array(diagonal), ir.DataType.INT64), upper=0)


@translates("aten.triu.default")
def triu(self: Value, diagonal: int = 0) -> Value:
    return op.Trilu(self, array(np.array(diagonal), ir.DataType.INT64), upper=1)


@translates("aten.masked_fill.Scalar")
def masked_fill(self: Value, mask: Value, value: float) -> Value:
    return op.Where(mask, full((), value, self.dtype or ir.DataType.FLOAT), self)


@translates("aten.masked_fill.Tensor")
def masked_fill_tensor(self: Value, mask: Value, value: Value) -> Value:
    return op.Where(mask, cast(value, self.dtype or ir.DataType.FLOAT), self)


@translates("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """x[mask] = y: a choice where y is one number, and a kernel of torch where it is a list of them."""
    entry = indices[0] if len(indices) == 1 else None
    if entry is None or entry.dtype != ir.DataType.BOOL:
        raise UntranslatableError("positions to write to")
    if sizes_of(values) in ([], [1]) and not accumulate:
        spread = list(range(rank_of(entry), rank_of(self)))
        number = op.Squeeze(values, [0]) if rank_of(values) else values
        typed(number, values, shape=())
        if spread:
            entry = typed(op.Unsqueeze(entry, spread), entry, shape=[*sizes_of(entry), *(1 for _ in spread)])
        return op.Where(entry, number, self)
    return kernel("MaskedPut")(self, entry, values, accumulate=int(accumulate))


@translates("aten.as_strided_scatter.default")
def as_strided_scatter(
    self: Value, src: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int
) -> Value:
    """One row of elements, some of which are replaced: see `memory_views`."""
    places = np.array(strided_places(size, stride, storage_offset))
    row = typed(op.Reshape(src, [-1]), src, shape=places.shape)
    return op.ScatterElements(self, array(places, ir.DataType.INT64), row, axis=0)
