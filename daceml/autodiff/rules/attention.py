"""Attention: probabilities are computed again from the scores and the logarithm of their sums.

With P = exp(S - logsumexp) and dP = dY V': dS = P (dP - sum(dY Y)), dQ = dS K, dK = dS' Q, dV = P' dY, and
the mask gets dS summed to its shape.
"""

from __future__ import annotations

import math

import dace
import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.attention import masked_score, with_heads
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import broadcast_index, divide, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, index_value, literal


def _logarithms(Q: Tensor, q_num_heads: int | None) -> tuple[tuple[Index, ...], object]:
    dtype = dace.float64 if Q.dtype == dace.float64 else dace.float32
    q = (Q.shape[1], Q.shape[2]) if Q.rank == 4 else (q_num_heads, Q.shape[1])
    return (Q.shape[0], *q), dtype


@vjp("AttentionSaving", domain="daceml", extra={"LogSumExp": _logarithms})
def attention_vjp(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None,
    Y: Tensor,
    LogSumExp: Tensor,
    dY: Tensor,
    dQ: Output | None,
    dK: Output | None,
    dV: Output | None,
    dattn_mask: Output | None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    scale: float | None = None,
    as_spelled: int = 0,
    mask_hides: int = 0,
) -> None:
    """Query head h belongs to key head h // group; keys and values get the sums over their group."""
    q, k, v = with_heads(Q, q_num_heads), with_heads(K, kv_num_heads), with_heads(V, kv_num_heads)
    y, dy = with_heads(Y, q_num_heads), with_heads(dY, q_num_heads)
    group = divide(q.shape[1], k.shape[1])
    if group is None:
        raise Refused(f"{q.shape[1]} query heads are no multiple of {k.shape[1]} key heads")
    batch, heads, rows, features = k.shape[0], k.shape[1], q.shape[2], q.shape[3]
    columns, width = k.shape[2], v.shape[3]
    if scale is None and not isinstance(features, int):
        raise Refused("scale is missing and the head size is symbolic")
    factor = 1 / math.sqrt(float(features)) if scale is None else scale  # pyright: ignore[reportArgumentType]
    grouped = (heads, group)
    q = q.reshape((batch, *grouped, rows, features))
    y, dy = (t.reshape((batch, *grouped, rows, width)) for t in (y, dy))
    sums = LogSumExp.reshape((batch, *grouped, rows))
    box = (batch, *grouped, rows, columns)

    def probability(b: Index, h: Index, g: Index, i: Index, j: Index) -> Scalar:
        value = sum_over((features,), lambda d: q[b, h, g, i, d] * k[b, h, j, d]) * factor
        if attn_mask is not None:
            whole = (batch, q.shape[1] * q.shape[2], rows, columns)
            value = masked_score(value, attn_mask, (b, h * group + g, i, j), whole, hides=bool(mask_hides))
        if is_causal:
            visible = index_value(j) <= index_value(i)
            value = where(visible, value, literal(-math.inf, value.dtype))
        return np.exp(value - sums[b, h, g, i])

    weights = compute(box, probability).materialize()
    if dV is not None:
        target = dV if dV.rank == 4 else dV.split(2, (heads, width)).permuted(0, 2, 1, 3)
        target[:] = compute(
            (batch, heads, columns, width),
            lambda b, h, j, d: sum_over(
                (group, rows), lambda g, i: weights[b, h, g, i, j] * dy[b, h, g, i, d]
            ),
        )
    if dQ is None and dK is None and dattn_mask is None:
        return
    shares = (dy * y).sum(-1).materialize()
    outer = compute(
        box, lambda b, h, g, i, j: sum_over((width,), lambda d: dy[b, h, g, i, d] * v[b, h, j, d])
    )
    scores = (weights * (outer - shares.expand_dims(-1))).materialize()
    if attn_mask is not None and mask_hides:
        scores = _without_hidden(scores, attn_mask, (batch, q.shape[1] * q.shape[2], rows, columns))
    if dattn_mask is not None:
        _mask_gradient(scores.reshape((batch, heads * group, rows, columns)), dattn_mask)
    if dQ is not None:
        target = dQ if dQ.rank == 4 else dQ.split(2, (heads * group, features)).permuted(0, 2, 1, 3)
        target.split(1, grouped)[:] = compute(
            (batch, *grouped, rows, features),
            lambda b, h, g, i, d: (
                sum_over((columns,), lambda j: scores[b, h, g, i, j] * k[b, h, j, d]) * factor
            ),
        )
    if dK is not None:
        target = dK if dK.rank == 4 else dK.split(2, (heads, features)).permuted(0, 2, 1, 3)
        target[:] = compute(
            (batch, heads, columns, features),
            lambda b, h, j, d: (
                sum_over((group, rows), lambda g, i: scores[b, h, g, i, j] * q[b, h, g, i, d]) * factor
            ),
        )


def _without_hidden(scores: Tensor, mask: Tensor, shape: tuple[Index, ...]) -> Tensor:
    """The gradient of the scores, 0 where the mask takes the place of one."""

    def element(b: Index, h: Index, g: Index, i: Index, j: Index) -> Scalar:
        hidden = mask[broadcast_index((b, h * scores.shape[2] + g, i, j), mask.shape, shape)] == -math.inf
        return where(hidden, literal(0, scores.dtype), scores[b, h, g, i, j])

    return compute(scores.shape, element).materialize()


def _mask_gradient(scores: Tensor, gradient: Output) -> None:
    """The gradient of the scores, summed to what was added to them."""
    missing = scores.rank - gradient.rank
    if missing < 0 or (
        gradient.rank and not same(gradient.shape[-1], 1) and not same(gradient.shape[-1], scores.shape[-1])
    ):
        raise Refused("the mask has other columns than there are keys")
    repeated = [
        d
        for d in range(missing, scores.rank)
        if same(gradient.shape[d - missing], 1) and not same(scores.shape[d], 1)
    ]
    total = scores.sum((*range(missing), *repeated), keepdims=True)
    gradient[:] = total.squeeze(*range(missing)) if missing else total
