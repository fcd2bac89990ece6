"""Reshapes, transposes, joins and parts: one constant where the target is static."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    END,
    Value,
    array,
    is_static,
    is_symbol,
    op,
    rank_of,
    sizes_of,
    typed,
    vector,
)

Extent = int | Value


@translates(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
)
def identity(self: Value, **_: Any) -> Value:
    return op.Identity(self)


@translates(
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten._reshape_copy.default"
)
def reshape(self: Value, size: Sequence[Extent]) -> Value:
    """Symbolic sizes: 0 where the input has the same size there, -1 for one more."""
    if all(isinstance(extent, int) for extent in size):
        return (
            op.Reshape(self, list(size), allowzero=int(0 in size))
            if 0 in size
            else op.Reshape(self, list(size))
        )
    given = sizes_of(self)
    target: list[Extent] = [
        0 if axis < len(given) and is_symbol(extent, given[axis]) else extent
        for axis, extent in enumerate(size)
    ]
    unknown = [axis for axis, extent in enumerate(target) if isinstance(extent, Value)]
    if len(unknown) == 1 and -1 not in size:
        target[unknown[0]] = -1
    return op.Reshape(self, vector(target))


@translates("aten.flatten.using_ints")
def flatten(self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    sizes, rank = sizes_of(self), rank_of(self)
    if rank == 0:
        return op.Reshape(self, [1])
    start, end = start_dim % rank, end_dim % rank
    merged = sizes[start : end + 1]
    kept = [*sizes[:start], -1, *sizes[end + 1 :]]
    if all(isinstance(size, int) for size in merged):
        kept[start] = int(np.prod([size for size in merged if isinstance(size, int)]))
    # 0 copies a symbolic size, which keeps its place up to the merged ones only
    target = [
        size if isinstance(size, int) else 0 if axis < start else None for axis, size in enumerate(kept)
    ]
    if None in target and -1 not in target and target.count(None) == 1:
        target[target.index(None)] = -1
    if None in target:
        raise UntranslatableError("a symbolic size after the flattened ones")
    return op.Reshape(self, target)


@translates("aten.unflatten.int")
def unflatten(self: Value, dim: int, sizes: Sequence[Extent]) -> Value:
    given = sizes_of(self)
    axis = dim % len(given)
    if not all(isinstance(size, int) for size in (*sizes, *given[axis + 1 :])):
        raise UntranslatableError("symbolic sizes in an unflatten")
    return op.Reshape(
        self, [*(s if isinstance(s, int) else 0 for s in given[:axis]), *sizes, *given[axis + 1 :]]
    )


@translates("aten.transpose.int")
def transpose(self: Value, dim0: int, dim1: int) -> Value:
    order = list(range(rank_of(self)))
    if not order:
        return op.Identity(self)
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return op.Transpose(self, perm=order)


@translates("aten.permute.default")
def permute(self: Value, dims: Sequence[int]) -> Value:
    return op.Transpose(self, perm=[dim % len(dims) for dim in dims])


@translates("aten.unsqueeze.default")
def unsqueeze(self: Value, dim: int) -> Value:
    return op.Unsqueeze(self, [dim])


@translates("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(self: Value, dim: int | Sequence[int] | None = None) -> Value:
    """torch ignores a dimension whose size is not 1."""
    sizes = sizes_of(self)
    axes = range(len(sizes)) if dim is None else [dim] if isinstance(dim, int) else dim
    ones = [axis % len(sizes) for axis in axes if sizes and sizes[axis] == 1]
    return op.Squeeze(self, ones) if ones else op.Identity(self)


@translates("aten.expand.default")
def expand(self: Value, size: Sequence[Extent], *, implicit: bool = False) -> Value:
    """1 keeps a size, in ONNX as -1 does in torch; so does a size that the input has already."""
    given = sizes_of(self)
    offset = len(size) - len(given)
    target = [
        1 if (isinstance(extent, int) and extent == -1) or is_symbol(extent, kept) else extent
        for extent, kept in zip(size, [None] * offset + given, strict=True)
    ]
    return op.Expand(self, vector(target))


@translates("aten.expand_as.default")
def expand_as(self: Value, other: Value) -> Value:
    sizes = sizes_of(other)
    if all(isinstance(size, int) for size in sizes):
        return op.Expand(self, sizes)
    return op.Expand(self, typed(op.Shape(other), dtype=ir.DataType.INT64, shape=(len(sizes),)))


@translates("aten.repeat.default", "aten.tile.default")
def repeat(self: Value, repeats: Sequence[Extent]) -> Value:
    sizes = sizes_of(self)
    missing = len(repeats) - len(sizes)
    if missing < 0:
        repeats = [1] * -missing + list(repeats)
    elif missing > 0:
        axes = list(range(missing))
        self = typed(op.Unsqueeze(self, axes), self, shape=[1] * missing + sizes)
    return op.Tile(self, vector(repeats))


@translates("aten.cat.default", "aten.concat.default")
def cat(tensors: Sequence[Value], dim: int = 0) -> Value:
    # torch skips the empty vectors that old code starts its lists with
    parts = [part for part in tensors if sizes_of(part) != [0]] or list(tensors)
    return op.Concat(*parts, axis=dim)


@translates("aten.stack.default")
def stack(tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % (rank_of(tensors[0]) + 1)
    lifted: list[Value] = []
    for part in tensors:
        sizes = sizes_of(part)
        lifted.append(typed(op.Unsqueeze(part, [axis]), part, shape=[*sizes[:axis], 1, *sizes[axis:]]))
    return op.Concat(*lifted, axis=axis)


def _split(self: Value, sizes: Sequence[int], axis: int) -> Sequence[Value]:
    if len(sizes) == 1:
        return [op.Identity(self)]
    parts = op.Split(self, list(sizes), axis=axis, num_outputs=len(sizes))
    # the recorder wants the count, ONNX forbids it beside explicit sizes
    parts[0].producer().attributes.pop("num_outputs")
    return list(parts)


@translates("aten.split_with_sizes.default", "aten.unsafe_split_with_sizes.default")
def split_with_sizes(self: Value, split_sizes: Sequence[Extent], dim: int = 0) -> Sequence[Value]:
    if not all(isinstance(size, int) for size in split_sizes):
        raise UntranslatableError("parts of symbolic size")
    return _split(self, list(split_sizes), dim)  # pyright: ignore[reportArgumentType]


@translates("aten.split.Tensor", "aten.unsafe_split.Tensor")
def split(self: Value, split_size: Extent, dim: int = 0) -> Sequence[Value]:
    extent = sizes_of(self)[dim]
    if not isinstance(extent, int) or not isinstance(split_size, int):
        raise UntranslatableError("a split of a symbolic size")
    return _split(
        self, [min(split_size, extent - start) for start in range(0, extent, split_size or 1)] or [0], dim
    )


@translates("aten.chunk.default")
def chunk(self: Value, chunks: int, dim: int = 0) -> Sequence[Value]:
    extent = sizes_of(self)[dim]
    if not isinstance(extent, int):
        raise UntranslatableError("chunks of a symbolic size")
    if extent == 0:
        return _split(self, [0] * chunks, dim)
    return split(self, -(-extent // chunks), dim)


@translates("aten.unbind.int")
def unbind(self: Value, dim: int = 0) -> Sequence[Value]:
    extent = sizes_of(self)[dim]
    if not isinstance(extent, int):
        raise UntranslatableError("unbinding a symbolic size")
    return [select(self, dim, index) for index in range(extent)]


@translates("aten.select.int")
def select(self: Value, dim: int, index: Extent) -> Value:
    if isinstance(index, int):
        return op.Gather(self, array(np.array(index), ir.DataType.INT64), axis=dim)
    return op.Gather(self, index, axis=dim)


@translates("aten.slice.Tensor")
def slice_tensor(
    self: Value, dim: int = 0, start: Extent | None = None, end: Extent | None = None, step: int = 1
) -> Value:
    first = 0 if start is None else start
    last = END if end is None else end
    if first == 0 and step == 1 and isinstance(last, int) and last == END:
        return op.Identity(self)
    return op.Slice(self, vector([first]), vector([last]), [dim], [step])


@translates("aten.narrow.default")
def narrow(self: Value, dim: int, start: Extent, length: Extent) -> Value:
    if not isinstance(start, int) or not isinstance(length, int):
        raise UntranslatableError("a symbolic part")
    # ONNX counts an end of 0 from the front
    return op.Slice(self, [start], [start + length or (END if start else 0)], [dim])


@translates("aten.flip.default")
def flip(self: Value, dims: Sequence[int]) -> Value:
    count = len(dims)
    if count == 0:
        return op.Identity(self)
    return op.Slice(self, [-1] * count, [-END] * count, list(dims), [-1] * count)


@translates("aten.broadcast_tensors.default")
def broadcast_tensors(tensors: Sequence[Value]) -> Sequence[Value]:
    shapes = [shape for shape in map(sizes_of, tensors) if is_static(shape)]
    if len(shapes) < len(tensors):
        raise UntranslatableError("tensors of symbolic sizes")
    shape = [int(size) for size in np.broadcast_shapes(*(tuple(shape) for shape in shapes))]
    return [op.Identity(t) if sizes_of(t) == shape else op.Expand(t, shape) for t in tensors]


@translates("aten.pad.default")
def pad_tensor(
    self: Value, pad: Sequence[Extent], mode: str = "constant", value: float | None = None
) -> Value:
    """torch counts pairs from the last dimension; ONNX wants all begins, then all ends."""
    if mode == "replicate" and any(isinstance(extent, int) and extent < 0 for extent in pad):
        raise UnsupportedError("a padding that repeats the edge of what another side cuts off")
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    rank, pairs = rank_of(self), len(pad) // 2
    begins: list[Extent] = [0] * rank
    ends: list[Extent] = [0] * rank
    for pair in range(pairs):
        begins[rank - 1 - pair], ends[rank - 1 - pair] = pad[2 * pair], pad[2 * pair + 1]
    return op.Pad(self, vector(begins + ends), None if value == 0 else value, mode=modes[mode])


@translates("aten.constant_pad_nd.default")
def constant_pad(self: Value, pad: Sequence[Extent], value: float = 0) -> Value:
    return pad_tensor(self, pad, "constant", value)
