"""Scaled dot-product attention: one Attention node, or spelled out where it has dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from daceml.frontend.translations import UnsupportedError, translates
from daceml.frontend.translations.emit import Value, array, op, rank_of, sizes_of, typed
from daceml.frontend.translations.random import dropout


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
    if dropout_p == 0 and rank in (3, 4) and rank_of(key) == rank_of(value) == rank:
        attributes: dict[str, Any] = {"is_causal": int(is_causal)} if is_causal else {}
        if scale is not None:
            attributes["scale"] = float(scale)
        if rank == 3:
            # ONNX reads three dimensions as [batch, length, heads * width]
            attributes |= {"q_num_heads": 1, "kv_num_heads": 1}
            if attn_mask is not None and rank_of(attn_mask) == 3:
                batch, *rest = sizes_of(attn_mask)
                attn_mask = typed(op.Unsqueeze(attn_mask, [1]), attn_mask, shape=(batch, 1, *rest))
        return op.Attention(query, key, value, attn_mask, **attributes)[0]
    if enable_gqa and sizes_of(query)[-3] != sizes_of(key)[-3]:
        raise UnsupportedError("attention with grouped heads and dropout")
    return _spelled_out(query, key, value, attn_mask, dropout_p, is_causal, scale)


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
        if not isinstance(length, int) or not isinstance(span, int):
            raise UnsupportedError("causal attention with dropout over a symbolic length")
        attn_mask = array(np.tril(np.ones((length, span), dtype=bool)), ir.DataType.BOOL)
    if attn_mask is not None:
        masked = (
            op.Where(attn_mask, scores, -math.inf)
            if attn_mask.dtype == ir.DataType.BOOL
            else op.Add(scores, attn_mask)
        )
        scores = typed(masked, scores)
    weights = typed(op.Softmax(scores, axis=-1), scores)
    if dropout_p > 0:
        weights = typed(dropout(weights, dropout_p, True), weights)
    return op.MatMul(weights, value)
