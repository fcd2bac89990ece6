"""Operators that move elements: reshapes, permutations, slices, joins, copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daceml.onnx_ops.native.reduction import constant_axes
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of, common_factors, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.rounded_division import never_negative
from daceml.sdfg.scalar import Index, Scalar, index_value
from daceml.sdfg.sizes import size


def copy_reshaped(data: Tensor, result: Output) -> None:
    """The elements in row-major order under another shape; affine indices wherever dimensions nest."""
    if any(same(s, 0) for s in result.shape):
        return
    common = common_factors(data.shape, result.shape)
    if common is None:
        # (6, 4) -> (8, 3): only the offset is common.
        result[:] = data.reshape(result.shape)
        return
    factors, _, groups = common
    target = result
    for axis in reversed(range(result.rank)):
        group = groups[axis]
        if len(group) != 1:
            target = target.split(axis, [factors[d] for d in group])
    target[:] = data.reshape(factors)


@implements("Reshape")
def reshape(data: Tensor, shape: Tensor | None, reshaped: Output, *, allowzero: int = 0) -> None:
    copy_reshaped(data, reshaped)


@implements("Flatten")
def flatten(input: Tensor, output: Output, *, axis: int = 1) -> None:
    copy_reshaped(input, output)


@implements("Squeeze")
def squeeze(data: Tensor, axes: Tensor | None, squeezed: Output) -> None:
    copy_reshaped(data, squeezed)


@implements("Unsqueeze")
def unsqueeze(data: Tensor, axes: Tensor | None, expanded: Output) -> None:
    copy_reshaped(data, expanded)


@implements("Identity")
def identity(input: Tensor, output: Output) -> None:
    output[:] = input


@implements("Transpose")
def transpose(data: Tensor, transposed: Output, *, perm: Sequence[int] | None = None) -> None:
    transposed[:] = data.transpose(*(perm or ()))


@implements("Expand")
def expand(input: Tensor, shape: Tensor | None, output: Output) -> None:
    output[:] = input


@implements("Tile")
def tile(input: Tensor, repeats: Tensor, output: Output) -> None:
    counts = repeats.numbers
    if counts is None:
        raise Refused("repeats is neither constant nor computed from sizes")
    target, source = output, input
    # Each tiled dimension is (repeats, size): the source does not depend on the first.
    for axis in reversed(range(input.rank)):
        if counts[axis] != 1:
            target = target.split(axis, (counts[axis], input.shape[axis]))
            source = source.expand_dims(axis)
    target[:] = source


@implements("Concat")
def concat(inputs: tuple[Tensor, ...], concat_result: Output, *, axis: int = 1) -> None:
    axis = axis_of(axis, concat_result.rank)
    start: Index = 0
    for part in inputs:
        end = size(start + part.shape[axis])
        box = [slice(None)] * concat_result.rank
        box[axis] = slice(start, end)
        concat_result[tuple(box)] = part
        start = end


@implements("Split")
def split(
    input: Tensor,
    split: Tensor | None,
    outputs: tuple[Output, ...],
    *,
    axis: int = 0,
    num_outputs: int | None = None,
) -> None:
    axis = axis_of(axis, input.rank)
    start: Index = 0
    for part in outputs:
        end = size(start + part.shape[axis])
        part[:] = input[(*[slice(None)] * axis, slice(start, end))]
        start = end


@implements("Slice")
def slice_(
    data: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None,
    steps: Tensor | None,
    output: Output,
) -> None:
    first, last = starts.numbers, ends.numbers
    if first is None or last is None:
        raise Refused("starts or ends is neither constant nor computed from sizes")
    if steps is not None and steps.value is None:
        raise Refused("steps is not constant")
    strides = [1] * len(first) if steps is None else np.asarray(steps.value).reshape(-1).tolist()
    chosen = constant_axes(axes) or range(len(first))
    keys: list[slice] = [slice(None)] * data.rank
    for axis, start, end, step in zip(chosen, first, last, strides, strict=True):
        place = axis_of(axis, data.rank)
        keys[place] = _slice_of(data.shape[place], output.shape[place], start, end, step)
    output[:] = data[tuple(keys)]


def _slice_of(extent: Index, length: Index, start: Index, end: Index, step: int) -> slice:
    if isinstance(extent, int) and isinstance(start, int) and isinstance(end, int):
        # ONNX ends below -extent mean "past the first element", which Python spells None.
        stop = None if step < 0 and end < -extent else end
        return slice(start, stop, step)
    first = _first(extent, length, start, end, step)
    stop = first + length * step
    return slice(first, None if step < 0 and same(size(stop), -1) else stop, step)


def _first(extent: Index, length: Index, start: Index, end: Index, step: int) -> Index:
    """Where a slice begins of which an extent or a bound is symbolic, counted from 0."""
    if step < 0 and not (isinstance(start, int) and start < 0):
        raise Refused("a slice from a fixed start backwards over a symbolic size")
    if isinstance(start, int):
        return start if start >= 0 else extent + start
    if never_negative(start):
        return start
    if never_negative(-start - 1):
        return extent + start
    if step == 1 and (same(end, extent) or (isinstance(end, int) and end >= _END)):
        return size(extent - length)
    raise Refused(f"a slice from {start}, which may count from either end")


_END = 2**31 - 1
"""An end of this size or more is the end of the dimension."""


@implements("Shape")
def shape(data: Tensor, shape: Output, *, start: int = 0, end: int | None = None) -> None:
    sizes = data.shape[slice(start, end)]
    _write_sizes(shape, sizes)


@implements("Size")
def size_(data: Tensor, size: Output) -> None:
    size[:] = compute((), lambda: index_value(data.size))


def _write_sizes(output: Output, sizes: Sequence[Index]) -> None:
    for position, extent in enumerate(sizes):
        output[position : position + 1] = compute((1,), lambda _, extent=extent: index_value(extent))


@implements("ConstantOfShape")
def constant_of_shape(input: Tensor, output: Output, *, value: np.ndarray | None = None) -> None:
    output[:] = 0 if value is None else np.asarray(value).reshape(-1)[0]


@implements("Range")
def range_(start: Tensor, limit: Tensor, delta: Tensor, output: Output) -> None:
    first, step = start.reshape(()).at(()), delta.reshape(()).at(())

    def element(i: Index) -> Scalar:
        return first + index_value(i).astype(first.dtype) * step

    output[:] = compute(output.shape, element)


@implements("Cast")
def cast(input: Tensor, output: Output, *, to: int, saturate: int = 1, round_mode: str = "up") -> None:
    output[:] = input.astype(output.dtype)


@implements("CastLike")
def cast_like(
    input: Tensor, target_type: Tensor, output: Output, *, saturate: int = 1, round_mode: str = "up"
) -> None:
    output[:] = input.astype(output.dtype)


@implements("DepthToSpace")
def depth_to_space(input: Tensor, output: Output, *, blocksize: int, mode: str = "DCR") -> None:
    n, c, h, w = input.shape
    target = output.split(3, (w, blocksize)).split(2, (h, blocksize))
    inner = size(c / (blocksize * blocksize)) if not isinstance(c, int) else c // (blocksize * blocksize)
    if mode == "DCR":
        source = input.reshape((n, blocksize, blocksize, inner, h, w)).transpose(0, 3, 4, 1, 5, 2)
    else:
        source = input.reshape((n, inner, blocksize, blocksize, h, w)).transpose(0, 1, 4, 2, 5, 3)
    target[:] = source


@implements("SpaceToDepth")
def space_to_depth(input: Tensor, output: Output, *, blocksize: int, mode: str = "DCR") -> None:
    n, c, *_ = input.shape
    rows, columns = output.shape[2], output.shape[3]
    source = input.reshape((n, c, rows, blocksize, columns, blocksize))
    if mode == "DCR":
        output.split(1, (blocksize, blocksize, c))[:] = source.transpose(0, 3, 5, 1, 2, 4)
    else:
        output.split(1, (c, blocksize, blocksize))[:] = source.transpose(0, 1, 3, 5, 2, 4)
