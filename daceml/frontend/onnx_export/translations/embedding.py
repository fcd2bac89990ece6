"""Embedding tables."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import (
    UnsupportedError,
    embedding_functions,
    translates,
)
from daceml.frontend.onnx_export.translations.emit import END, Size, Value, cast, op, sizes_of, typed

INT64 = ir.DataType.INT64
SUM, MEAN, MAX = range(3)


@translates("aten.embedding.default")
def embedding(
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return op.Gather(weight, indices, axis=0)


@translates("aten.embedding_bag.padding_idx", "aten.embedding_bag.default")
def embedding_bag(
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Value, Value, Value, Value]:
    """Outputs 1 to 3 are stand-ins for what torch's backward alone reads (`capture.refused_traces`)."""
    if scale_grad_by_freq:
        raise UnsupportedError("bags whose gradient is scaled by how often a row is used")
    unread = [op.Identity(offsets) for _ in range(3)]
    if include_last_offset:
        # Rows from the last offset on are a bag of their own, which nobody wants.
        every = embedding_bag(
            weight, indices, offsets, False, mode, False, per_sample_weights, False, padding_idx
        )
        typed(every[0], weight, shape=(sizes_of(offsets)[0], sizes_of(weight)[1]))
        return op.Slice(every[0], [0], [-1], [0]), *unread
    bags = sizes_of(offsets)[0]
    padding = None if padding_idx is None or padding_idx < 0 else padding_idx
    plain = mode != MAX and per_sample_weights is None and padding is None
    functions: Any = embedding_functions  # onnxscript types them as the functions that they are made of
    shape = (bags, sizes_of(weight)[1])
    kept = None
    if plain:
        bagged = functions.EmbeddingBagSum(weight, indices, offsets)
    else:
        rows, kept = _bag_rows(
            weight, indices, per_sample_weights, padding, -math.inf if mode == MAX else 0.0
        )
        bagged = (functions.SegmentMax if mode == MAX else functions.SegmentSum)(rows, offsets)
    if mode == SUM:
        return bagged, *unread
    if kept is None:
        counts = _rows_of_bags(indices, offsets, bags, weight)
    else:
        ones = typed(op.Cast(kept, to=weight.dtype), kept, dtype=weight.dtype)
        counts = typed(functions.SegmentSum(ones, offsets), weight, shape=(bags, 1))
    typed(bagged, weight, shape=shape)
    if mode == MEAN:
        return op.Div(bagged, typed(op.Max(counts, 1.0), counts)), *unread
    empty = typed(op.Equal(counts, 0.0), counts, dtype=ir.DataType.BOOL)
    return op.Where(empty, 0.0, bagged), *unread


@translates("aten.embedding_renorm.default")
def embedding_renorm(self: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    raise UnsupportedError(
        f"an embedding with max_norm={max_norm}, which rescales those rows of its weight that it looks up, "
        "at every call; leave max_norm out, and rescale the weight after the optimizer's step (torch.renorm)"
    )


def _bag_rows(
    weight: Value, indices: Value, sample_weights: Value | None, padding: int | None, nothing: float
) -> tuple[Value, Value | None]:
    """The rows of all bags: [T, D], `nothing` in the place of padding; and which are none: [T, 1]."""
    (count,), width = sizes_of(indices), sizes_of(weight)[1]
    rows = typed(op.Gather(weight, indices, axis=0), weight, shape=(count, width))
    if sample_weights is not None:
        factors = typed(op.Unsqueeze(sample_weights, [1]), sample_weights, shape=(count, 1))
        rows = typed(op.Mul(rows, factors), rows)
    if padding is None:
        return rows, None
    padded = typed(op.Equal(indices, padding), indices, dtype=ir.DataType.BOOL)
    kept = typed(op.Not(padded), padded)
    column = typed(op.Unsqueeze(kept, [1]), kept, shape=(count, 1))
    return typed(op.Where(column, rows, nothing), rows), column


def _one_less(size: Size) -> Size:
    return size - 1 if isinstance(size, int) else None if size is None else f"{size} - 1"


def _rows_of_bags(indices: Value, offsets: Value, bags: Size, weight: Value) -> Value:
    """How many rows each bag has: [B, 1] in the type of the weight."""
    count = typed(op.Shape(indices), dtype=INT64, shape=(1,))
    following = typed(op.Slice(offsets, [1], [END], [0]), offsets, shape=(_one_less(bags),))
    ends = typed(op.Concat(following, cast(count, offsets.dtype or INT64), axis=0), offsets, shape=(bags,))
    rows = typed(op.Sub(ends, offsets), offsets, shape=(bags,))
    column = typed(op.Unsqueeze(rows, [1]), rows, shape=(bags, 1))
    return typed(op.Cast(column, to=weight.dtype), weight, shape=(bags, 1))
