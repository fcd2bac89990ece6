"""Parts of a tensor in other places: `x[a:b] = y`, `x[i] = y`, roll."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    END,
    FLOATS,
    Size,
    Value,
    array,
    cast,
    full,
    is_static,
    op,
    product,
    rank_of,
    sizes_of,
    typed,
)
from daceml.frontend.onnx_export.translations.sizes import sym_size

Extent = int | Value
_INT64 = ir.DataType.INT64


@translates("aten.slice_scatter.default")
def slice_scatter(
    self: Value,
    src: Value,
    dim: int = 0,
    start: Extent | None = None,
    end: Extent | None = None,
    step: int = 1,
) -> Value:
    axis = dim % len(sizes_of(self))
    extent = sizes_of(self)[axis]
    first, last = 0 if start is None else start, END if end is None else end
    if isinstance(extent, int) and isinstance(first, int) and isinstance(last, int):
        first, last, _ = slice(first, last, step).indices(extent)
        if first >= last:
            return op.Identity(self)
    if step == 1 and isinstance(first, int) and isinstance(last, int) and extent is not None:
        return _written(self, src, axis, first, last)
    return _placed(self, src, axis, first, step)


@translates("aten.select_scatter.default")
def select_scatter(self: Value, src: Value, dim: int, index: Extent) -> Value:
    sizes = sizes_of(self)
    axis = dim % len(sizes)
    extent = sizes[axis]
    row = typed(op.Unsqueeze(src, [axis]), src, shape=[*sizes[:axis], 1, *sizes[axis + 1 :]])
    if not isinstance(index, int) or extent is None:
        return _placed(self, row, axis, index, 1)
    first = index % extent if isinstance(extent, int) else index
    return _written(self, row, axis, first, first + 1 or END)


@translates("aten.scatter.src")
def scatter(self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(self, dim, index, src, "none")


@translates("aten.scatter.value")
def scatter_value(self: Value, dim: int, index: Value, value: float) -> Value:
    number = full((1,), value, self.dtype or ir.DataType.FLOAT)
    row, sizes = _with_axis(index)
    extents = typed(op.Shape(row), dtype=_INT64, shape=(len(sizes),))
    return _scattered(
        self, dim, row, typed(op.Expand(number, extents), dtype=self.dtype, shape=sizes), "none"
    )


@translates("aten.scatter_add.default")
def scatter_add(self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(self, dim, index, src, "add")


@translates("aten.index_fill.int_Scalar")
def index_fill(self: Value, dim: int, index: Value, value: float) -> Value:
    return index_fill_tensor(self, dim, index, full((), value, self.dtype or ir.DataType.FLOAT))


@translates("aten.index_fill.int_Tensor")
def index_fill_tensor(self: Value, dim: int, index: Value, value: Value) -> Value:
    """A scatter of rows; torch's decomposition leads to index_copy, which takes no negative positions."""
    sizes = sizes_of(self)
    if not sizes or rank_of(index) != 1:
        raise UntranslatableError("a single number, or a position that is not a list")
    axis = dim % len(sizes)
    count = sizes_of(index)[0]
    shape = typed(op.Shape(self), dtype=_INT64, shape=(len(sizes),))
    before, after = (
        typed(op.Slice(shape, [start], [end]), dtype=_INT64, shape=(end - start,))
        for start, end in ((0, axis), (axis + 1, len(sizes)))
    )
    extents = typed(op.Shape(index), dtype=_INT64, shape=(1,))
    wanted = typed(op.Concat(before, extents, after, axis=0), dtype=_INT64, shape=(len(sizes),))
    parts = [*sizes[:axis], count, *sizes[axis + 1 :]]
    others = [d for d in range(len(sizes)) if d != axis]
    column = typed(
        op.Unsqueeze(index, others), index, shape=[count if d == axis else 1 for d in range(len(sizes))]
    )
    places = typed(op.Expand(column, wanted), index, shape=parts)
    values = typed(op.Expand(cast(value, self.dtype or ir.DataType.FLOAT), wanted), self, shape=parts)
    return op.ScatterElements(self, places, values, axis=axis)


def _scattered(self: Value, dim: int, index: Value, src: Value, reduction: str) -> Value:
    """ScatterElements, which takes no scalars; torch takes them for rows of one element."""
    target = _with_axis(self)[0]
    made = op.ScatterElements(target, _with_axis(index)[0], _with_axis(src)[0], axis=dim, reduction=reduction)
    return made if target is self else op.Reshape(typed(made, target), [])


def _with_axis(value: Value) -> tuple[Value, list[Size]]:
    """A tensor of at least one dimension, and its sizes."""
    if sizes := sizes_of(value):
        return value, sizes
    return typed(op.Reshape(value, [1]), value, shape=(1,)), [1]


@translates("aten.scatter_reduce.two")
def scatter_reduce(
    self: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Means and extremes.

    ONNX's ScatterElements has no means: they are sums divided by counts. torch's own table starts extremes
    without the element itself from the largest finite number, or from NaN where the element is NaN.
    """
    kind = self.dtype
    if (
        reduce in ("amax", "amin")
        and not include_self
        and kind is not None
        and kind in FLOATS
        and sizes_of(self)
    ):
        worst = full((1,), -math.inf if reduce == "amax" else math.inf, kind)
        places = typed(op.Shape(index), dtype=_INT64, shape=(rank_of(index),))
        start = typed(op.Expand(worst, places), self, shape=sizes_of(index))
        cleared = typed(op.ScatterElements(self, index, start, axis=dim), self)
        return op.ScatterElements(cleared, index, src, axis=dim, reduction=reduce[1:])
    if reduce != "mean":
        raise UntranslatableError("torch's own table has it")
    sizes, places = sizes_of(self), sizes_of(index)
    if not (is_static(sizes) and is_static(places)):
        raise UnsupportedError("a scattered mean of symbolic sizes")
    if kind is None or kind not in FLOATS or not sizes:
        raise UnsupportedError("a scattered mean of whole numbers, or into a single number")
    if sizes_of(src) != places:
        axes = list(range(len(places)))
        src = typed(op.Slice(src, [0] * len(axes), list(places), axes), src, shape=places)
    axis = dim % len(sizes)

    def added(start: Value, updates: Value) -> Value:
        return typed(op.ScatterElements(start, index, updates, axis=axis, reduction="add"), self)

    counts = added(full(sizes, float(include_self), kind), full(places, 1.0, kind))
    if include_self:
        return op.Div(added(self, src), counts)
    sums = added(full(sizes, 0.0, kind), src)
    one = full((), 1.0, kind)
    untouched = typed(op.Equal(counts, full((), 0.0, kind)), self, dtype=ir.DataType.BOOL)
    return op.Where(untouched, self, typed(op.Div(sums, typed(op.Max(counts, one), self)), self))


def _written(self: Value, parts: Value, axis: int, start: int, end: int) -> Value:
    """`parts` in the place of [start, end) of a dimension; negative bounds count from the end."""
    pieces = [parts]
    if start != 0:
        pieces.insert(0, _piece(self, axis, 0, start))
    if end != END and end != sizes_of(self)[axis]:
        pieces.append(_piece(self, axis, end, END))
    return op.Concat(*pieces, axis=axis) if len(pieces) > 1 else op.Identity(parts)


def _piece(self: Value, axis: int, start: int, end: int) -> Value:
    """The first elements up to `end`, or the last ones from `start`."""
    sizes = sizes_of(self)
    bound = start or end
    whole = sizes[axis]
    if (bound < 0) == bool(start):
        size: Size = abs(bound)
    else:
        size = whole - abs(bound) if isinstance(whole, int) else f"({whole}) - {abs(bound)}"
    shape = [*sizes[:axis], size, *sizes[axis + 1 :]]
    return typed(op.Slice(self, [start], [end], [axis]), self, shape=shape)


def _placed(self: Value, parts: Value, axis: int, start: Extent, step: int) -> Value:
    """Every position takes its own element, or that of `parts` that belongs there."""
    sizes, extent, count = sizes_of(self), sym_size(self, axis), sym_size(parts, axis)
    for size in (extent, count):
        typed(size, dtype=_INT64, shape=())
    length = [sizes[axis]]
    if not isinstance(start, int):
        counted = typed(op.Add(start, extent), dtype=_INT64, shape=())
        negative = typed(op.Less(start, _number(0)), dtype=ir.DataType.BOOL, shape=())
        first = typed(op.Where(negative, counted, start), dtype=_INT64, shape=())
    elif start < 0:
        first = typed(op.Add(extent, _number(start)), dtype=_INT64, shape=())
    else:
        first = _number(start)
    distance = typed(op.Sub(_positions(extent, length), first), dtype=_INT64, shape=length)
    number = typed(op.Div(distance, _number(step)), dtype=_INT64, shape=length)
    back = typed(op.Mul(number, _number(step)), dtype=_INT64, shape=length)
    last = typed(op.Sub(count, _number(1)), dtype=_INT64, shape=())
    conditions = [op.Equal(back, distance), op.GreaterOrEqual(distance, _number(0)), op.Less(number, count)]
    inside = conditions[0]
    for condition in conditions:
        typed(condition, dtype=ir.DataType.BOOL, shape=length)
    for condition in conditions[1:]:
        inside = typed(op.And(inside, condition), dtype=ir.DataType.BOOL, shape=length)
    near = typed(op.Clip(number, _number(0), last), dtype=_INT64, shape=length)
    taken = typed(op.Gather(parts, near, axis=axis), self)
    column = [1] * (len(sizes) - axis - 1)
    mask = typed(op.Reshape(inside, [-1, *column]), dtype=ir.DataType.BOOL, shape=[*length, *column])
    return op.Where(mask, taken, self)


@translates("aten.roll.default")
def roll(self: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """The last elements come first; dimension by dimension, or over everything as one."""
    sizes = sizes_of(self)
    if 0 in sizes or not sizes:
        return op.Identity(self)
    if not dims:
        flat = typed(op.Reshape(self, [-1]), self, shape=[product(sizes)])
        rolled = typed(_rolled(flat, shifts[0], 0), flat)
        shape = typed(op.Shape(self), dtype=_INT64, shape=(len(sizes),))
        return op.Reshape(rolled, shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = typed(_rolled(self, shift, dim % len(sizes)), self, shape=sizes)
    return self


def _rolled(self: Value, shift: Extent, axis: int) -> Value:
    extent = sizes_of(self)[axis]
    if not isinstance(extent, int) or not isinstance(shift, int):
        count = typed(sym_size(self, axis), dtype=_INT64, shape=())
        by = _number(shift) if isinstance(shift, int) else shift
        before = typed(op.Sub(_positions(count, [extent]), by), dtype=_INT64, shape=[extent])
        # ONNX's Mod has the sign of the divisor
        return op.Gather(self, typed(op.Mod(before, count), before), axis=axis)
    cut = -shift % extent
    if cut == 0:
        return op.Identity(self)
    pieces = [_piece(self, axis, cut, END), _piece(self, axis, 0, cut)]
    return op.Concat(*pieces, axis=axis)


def _positions(count: Value, length: Sequence[Size]) -> Value:
    return typed(op.Range(_number(0), count, _number(1)), dtype=_INT64, shape=length)


def _number(value: int) -> Value:
    return array(np.array(value), _INT64)


@translates("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Every (columns + 1)-th element of the rows one after the other."""
    sizes = sizes_of(self)
    if not is_static(sizes):
        raise UntranslatableError("the diagonal of a tensor with symbolic sizes")
    first, second = dim1 % len(sizes), dim2 % len(sizes)
    others = [d for d in range(len(sizes)) if d not in (first, second)]
    rows, columns = sizes[first], sizes[second]
    kept = [sizes[d] for d in others]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    order = [*others, first, second]
    moved = self
    if order != sorted(order):
        moved = typed(op.Transpose(self, perm=order), self, shape=[*kept, rows, columns])
    flat = typed(op.Reshape(moved, [*kept, rows * columns], allowzero=1), self, shape=[*kept, rows * columns])
    start = offset if offset >= 0 else -offset * columns
    end = start + (count - 1) * (columns + 1) + 1 if count else start
    return op.Slice(flat, [start], [end], [len(kept)], [columns + 1])
