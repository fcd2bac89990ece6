"""Embedding tables."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from daceml.frontend.translations import UntranslatableError, translates
from daceml.frontend.translations.emit import END, Size, Value, op, sizes_of, typed

INT64 = ir.DataType.INT64


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
    """Outputs 1 to 3 are read by torch's backward only: they repeat the offsets."""
    from daceml.frontend.translations.embedding_functions import EmbeddingBagSum

    if mode not in (0, 1) or per_sample_weights is not None or padding_idx not in (None, -1):
        raise UntranslatableError("an embedding bag with maxima, sample weights or a padding index")
    starts: Any = op.Slice(offsets, [0], [-1], [0]) if include_last_offset else offsets
    unread = [op.Identity(offsets) for _ in range(3)]
    bags = sizes_of(offsets)[0]
    if include_last_offset:
        bags = bags - 1 if isinstance(bags, int) else None
        typed(starts, offsets, shape=(bags,))
    bagged: Any = EmbeddingBagSum
    total = bagged(weight, indices, starts)
    if mode == 0:
        return total, *unread
    rows = _rows_of_bags(indices, starts, bags, weight)
    return op.Div(typed(total, weight, shape=(bags, sizes_of(weight)[1])), rows), *unread


def _rows_of_bags(indices: Value, offsets: Value, bags: Size, weight: Value) -> Value:
    """How many rows each bag has, one where it is empty: [B, 1] in the type of the weight."""
    count = typed(op.Shape(indices), dtype=INT64, shape=(1,))
    later = None if not isinstance(bags, int) else bags - 1
    following = typed(op.Slice(offsets, [1], [END], [0]), dtype=INT64, shape=(later,))
    ends = typed(op.Concat(following, count, axis=0), dtype=INT64, shape=(bags,))
    rows = typed(op.Sub(ends, offsets), dtype=INT64, shape=(bags,))
    column = typed(op.Unsqueeze(typed(op.Max(rows, 1), rows), [1]), dtype=INT64, shape=(bags, 1))
    return typed(op.Cast(column, to=weight.dtype), weight, shape=(bags, 1))
