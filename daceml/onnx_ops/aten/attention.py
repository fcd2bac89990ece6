"""Scaled dot-product attention by torch's fused kernel: the matrix of scores never reaches memory."""

from __future__ import annotations

import math

from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import divide, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, TensorView
from daceml.sdfg.sizes import Size, product, row_major


def factor_of(scale: float | None) -> float:
    """A scale as calls take it: NaN is for one that nobody has given, which is 1 / sqrt(features)."""
    return math.nan if scale is None else float(scale)


def attention_refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Y: Tensor,
    attn_mask: Tensor | None,
    softcap: float | None,
    is_causal: int,
) -> str | None:
    """Why torch's kernel does not take these operands."""
    if (Q.rank, K.rank, V.rank) != (4, 4, 4):
        return "torch's kernel takes [batch, heads, length, features]"
    if divide(Q.shape[1], K.shape[1]) is None or not same(K.shape[1], V.shape[1]):
        return f"{Q.shape[1]} heads of queries, {K.shape[1]} of keys and {V.shape[1]} of values"
    if Q.shape[-1] != V.shape[-1]:
        return "values and queries differ in width"
    if softcap:
        return "torch's kernel does not cap scores"
    if attn_mask is not None:
        if attn_mask.dtype != Q.dtype:
            return f"the mask is {attn_mask.dtype.to_string()}, the operands are {Q.dtype.to_string()}"
        if mask_strides(attn_mask.shape, _scores(Q, K)) is None:
            return f"a mask of shape {list(attn_mask.shape)} for scores of shape {list(_scores(Q, K))}"
        if is_causal:
            return "a mask together with is_causal"
    return no_empty_operand(Q, K, V) or float_operands(Q, K, V, Y)


def _scores(Q: Tensor, K: Tensor) -> tuple[Size, ...]:
    return (Q.shape[0], Q.shape[1], Q.shape[2], K.shape[2])


def mask_strides(shape: tuple[Size, ...], scores: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """Strides under which a mask has the shape of the scores: 0 where it is repeated."""
    missing = len(scores) - len(shape)
    if missing < 0:
        return None
    strides: list[Size] = [0] * missing
    for extent, wanted, stride in zip(shape, scores[missing:], row_major(shape), strict=True):
        if not same(extent, wanted) and not same(extent, 1):
            return None
        strides.append(0 if same(extent, 1) else stride)
    return tuple(strides)


def mask_view(mask: Tensor | None, Q: Tensor, K: Tensor) -> TensorView | None:
    """A mask in the shape of the scores, without a copy."""
    scores = _scores(Q, K)
    return None if mask is None else view(mask, scores, mask_strides(mask.shape, scores))


@implements("Attention", kind="aten", name="flash", when=attention_refusal, devices=("cpu",))
def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Y: Output,
    attn_mask: Tensor | None = None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
) -> AtenCall:
    """Forward of `aten::_scaled_dot_product_flash_attention_for_cpu`."""
    mask = mask_view(attn_mask, Q, K)
    return AtenCall(
        function="attention",
        arguments=(view(Q), view(K), view(V), mask, bool(is_causal), factor_of(scale)),
        writes=Y.name,
        fresh=True,
        flops=4 * product(Q.shape) * K.shape[2],
    )
