"""Scaled dot-product attention: one Attention node, or spelled out where it has dropout."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, translates
from daceml.frontend.onnx_export.translations.emit import Size, Value, array, op, rank_of, sizes_of, typed
from daceml.frontend.onnx_export.translations.precision import attributes_hold
from daceml.frontend.onnx_export.translations.random import dropout


@translates("aten.scaled_dot_product_attention.default")
def attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """query: [B, H, L, E], key: [B, G, S, E], value: [B, G, S, V], or all without heads."""
    rank = rank_of(query)
    alike = rank_of(key) == rank_of(value) == rank and sizes_of(value)[-1] == sizes_of(query)[-1]
    if dropout_p == 0 and alike and rank == 3:
        query, key, value = (_with_a_head(operand) for operand in (query, key, value))
        if attn_mask is not None and rank_of(attn_mask) == 3:
            attn_mask = _with_a_head(attn_mask)
        heads = _attention(query, key, value, attn_mask, is_causal, scale)
        return op.Squeeze(typed(heads, query), [1])
    if dropout_p == 0 and alike and rank == 4:
        return _attention(query, key, value, attn_mask, is_causal, scale)
    if enable_gqa and sizes_of(query)[-3] != sizes_of(key)[-3]:
        key, value = (_repeated_heads(operand, sizes_of(query)[-3]) for operand in (key, value))
    return _spelled_out(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _attention(
    query: Value, key: Value, value: Value, mask: Value | None, is_causal: bool, scale: float | None
) -> Value:
    attributes: dict[str, Any] = {"is_causal": int(is_causal)} if is_causal else {}
    if scale is not None and not attributes_hold(query, scale):
        query, scale = typed(op.Mul(query, float(scale)), query), 1.0
    if scale is not None:
        attributes["scale"] = float(scale)
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        mask = _as_addend(mask, query)
    return op.Attention(query, key, value, mask, **attributes)[0]


def _with_a_head(operand: Value) -> Value:
    """[B, L, E] -> [B, 1, L, E]; ONNX would read three dimensions as [B, L, heads * width]."""
    batch, *rest = sizes_of(operand)
    return typed(op.Unsqueeze(operand, [1]), operand, shape=(batch, 1, *rest))


def _as_addend(mask: Value, query: Value) -> Value:
    """0 where a mask is true, -inf elsewhere, as torch does it: its kernel adds masks to scores."""
    dtype = query.dtype or ir.DataType.FLOAT
    shown, hidden = (array(np.array(number, dtype.numpy()), dtype) for number in (0.0, -math.inf))
    return typed(op.Where(mask, shown, hidden), mask, dtype=dtype)


def _repeated_heads(operand: Value, heads: Size) -> Value:
    """[B, G, S, E] -> [B, H, S, E]: each head as often as it is shared."""
    groups = sizes_of(operand)[-3]
    if rank_of(operand) != 4 or not isinstance(heads, int) or not isinstance(groups, int):
        raise UnsupportedError(
            "attention with dropout and grouped heads, other than [batch, heads, length, width]"
        )
    batch, _, span, width = sizes_of(operand)
    times = heads // groups
    apart = typed(op.Unsqueeze(operand, [2]), operand, shape=(batch, groups, 1, span, width))
    repeated = typed(op.Expand(apart, [1, 1, times, 1, 1]), apart, shape=(batch, groups, times, span, width))
    return typed(op.Reshape(repeated, [0, heads, -1, width]), operand, shape=(batch, heads, span, width))


def _spelled_out(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Value:
    """MatMul, Mul, mask, Softmax, Dropout, MatMul: ONNX's Attention has no dropout."""
    *batch, length, width = sizes_of(query)
    span = sizes_of(key)[-2]
    factor = scale if scale is not None else 1 / math.sqrt(width)  # pyright: ignore[reportArgumentType]
    order = list(range(rank_of(key)))
    order[-1], order[-2] = order[-2], order[-1]
    keys = typed(op.Transpose(key, perm=order), key, shape=[sizes_of(key)[axis] for axis in order])
    scores = typed(op.MatMul(query, keys), query, shape=(*batch, length, span))
    scores = typed(op.Mul(scores, factor), scores)
    if is_causal:
        masked = typed(op.Where(_causal_mask(query, key, length, span), scores, -math.inf), scores)
        weights = typed(op.Softmax(masked, axis=-1), scores)
    elif attn_mask is None:
        weights = typed(op.Softmax(scores, axis=-1), scores)
    else:
        weights = _masked_softmax(scores, attn_mask)
    if dropout_p > 0:
        weights = typed(dropout(weights, dropout_p, True), weights)
    return op.MatMul(weights, value)


def _causal_mask(query: Value, key: Value, length: Size, span: Size) -> Value:
    """True on and below the diagonal: [L, S]."""
    if isinstance(length, int) and isinstance(span, int):
        return array(np.tril(np.ones((length, span), dtype=bool)), ir.DataType.BOOL)
    extents = [
        typed(op.Shape(operand, start=-2, end=-1), dtype=ir.DataType.INT64, shape=(1,))
        for operand in (query, key)
    ]
    shape = typed(op.Concat(*extents, axis=0), dtype=ir.DataType.INT64, shape=(2,))
    everything = op.ConstantOfShape(shape, value=ir.tensor([True], dtype=ir.DataType.BOOL))
    return typed(
        op.Trilu(typed(everything, dtype=ir.DataType.BOOL, shape=(length, span)), upper=0),
        dtype=ir.DataType.BOOL,
        shape=(length, span),
    )


def _masked_softmax(scores: Value, mask: Value) -> Value:
    """A row that the mask leaves nothing of is zero, as in torch; a softmax of -inf alone would be NaN."""
    if mask.dtype == ir.DataType.BOOL:
        lowest = float(ml_dtypes.finfo((scores.dtype or ir.DataType.FLOAT).numpy()).min)
        masked = typed(op.Where(mask, scores, lowest), scores)
        weights = typed(op.Softmax(masked, axis=-1), scores)
        return typed(op.Where(mask, weights, 0.0), scores)
    rows = typed(op.ReduceMax(mask, [-1], keepdims=1), mask, shape=(*sizes_of(mask)[:-1], 1))
    nothing = typed(op.Equal(rows, -math.inf), rows, dtype=ir.DataType.BOOL)
    finite = typed(op.Where(nothing, 0.0, mask), mask)
    weights = typed(op.Softmax(typed(op.Add(scores, finite), scores), axis=-1), scores)
    return typed(op.Where(nothing, 0.0, weights), scores)
