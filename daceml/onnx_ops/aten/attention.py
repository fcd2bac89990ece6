"""Scaled dot-product attention by torch's fused kernel: the matrix of scores never reaches memory."""

from __future__ import annotations

from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import product


def _refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Y: Output,
    attn_mask: Tensor | None,
    softcap: float | None,
    is_causal: int,
) -> str | None:
    if (Q.rank, K.rank, V.rank) != (4, 4, 4):
        return "torch's kernel takes [batch, heads, length, features]"
    if Q.shape[1] != K.shape[1] or K.shape[1] != V.shape[1]:
        return "grouped heads"
    if Q.shape[-1] != V.shape[-1]:
        return "values have another width than queries"
    if softcap:
        return "torch's kernel does not cap scores"
    if attn_mask is not None:
        full = (Q.shape[0], Q.shape[1], Q.shape[2], K.shape[2])
        if attn_mask.shape != full or attn_mask.dtype != Q.dtype:
            return "the mask is not a tensor of scores of the operands' type and full shape"
        if is_causal:
            return "a mask together with is_causal"
    if is_causal and Q.shape[2] != K.shape[2]:
        return "is_causal with queries and keys of different length"
    return no_empty_operand(Q, K, V) or float_operands(Q, K, V, Y)


@implements("Attention", kind="aten", name="flash", when=_refusal)
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
    mask = None if attn_mask is None else view(attn_mask)
    return AtenCall(
        function="attention",
        arguments=(view(Q), view(K), view(V), mask, bool(is_causal), -1.0 if scale is None else float(scale)),
        writes=Y.name,
        fresh=True,
        flops=4 * product(Q.shape) * K.shape[2],
    )
