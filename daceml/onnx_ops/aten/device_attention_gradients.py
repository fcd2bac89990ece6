"""Gradients of scaled dot-product attention on CUDA devices by torch's fused kernels.

Weights are computed again from the logarithms that forward saved, one for each query, as every
implementation gives them. The memory-efficient kernel wants them in rows of 32, so where there are other
numbers of queries the call copies them.
"""

from __future__ import annotations

from daceml.onnx_ops.aten.attention import factor_of
from daceml.onnx_ops.aten.device_attention import (
    EFFICIENT,
    FLASH,
    attended,
    efficient_refusal,
    flash_refusal,
    heads_view,
    mask_as_stored,
)
from daceml.onnx_ops.aten.gradients import gradient_call
from daceml.onnx_ops.aten.views import GRADIENTS, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import product, size

_FLOAT_BYTES = 4


def _flash_refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    dY: Tensor,
    attn_mask: Tensor | None,
    is_causal: int,
    q_num_heads: int | None,
    kv_num_heads: int | None,
    architecture: int | None,
) -> str | None:
    refused = flash_refusal(Q, K, V, dY, attn_mask, is_causal, None, q_num_heads, kv_num_heads, architecture)
    width = heads_view(Q, q_num_heads).sizes[3] if refused is None else 0
    small = architecture is not None and (86 <= architecture < 90 or architecture >= 120)
    # Source: torch, sdp_utils.cpp: check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120
    if small and isinstance(width, int) and 192 < width <= 224:
        return f"FlashAttention has no gradient for heads of {width} elements on this device"
    return refused


@implements(
    "AttentionSavingGrad",
    domain=GRADIENTS,
    kind="aten",
    name=f"{FLASH}_backward",
    when=_flash_refusal,
    devices=("cuda",),
)
def flash_gradient(
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
    *,
    is_causal: int = 0,
    scale: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    as_spelled: int = 0,
    mask_hides: int = 0,
) -> AtenCall:
    """`aten::_scaled_dot_product_flash_attention_backward`, which adds up dQ in float32."""
    return gradient_call(
        "device_flash_attention_backward",
        (dQ, dK, dV),
        heads_view(dY, q_num_heads),
        heads_view(Q, q_num_heads),
        *(heads_view(t, kv_num_heads) for t in (K, V)),
        heads_view(Y, q_num_heads),
        view(LogSumExp),
        bool(is_causal),
        Q.rank == 3,
        factor_of(scale),
        flops=10 * product(size(s) for s in Q.shape) * attended(K, kv_num_heads),
        temporary_bytes=_FLOAT_BYTES * product(size(s) for s in Q.shape),
    )


def _efficient_refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    dY: Tensor,
    attn_mask: Tensor | None,
    is_causal: int,
    as_spelled: int,
    q_num_heads: int | None,
    kv_num_heads: int | None,
    architecture: int | None,
) -> str | None:
    return efficient_refusal(
        Q, K, V, dY, attn_mask, is_causal, as_spelled, None, q_num_heads, kv_num_heads, architecture
    )


@implements(
    "AttentionSavingGrad",
    domain=GRADIENTS,
    kind="aten",
    name=f"{EFFICIENT}_backward",
    when=_efficient_refusal,
    devices=("cuda",),
)
def efficient_gradient(
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
    scale: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    as_spelled: int = 0,
    mask_hides: int = 0,
) -> AtenCall:
    """`aten::_scaled_dot_product_efficient_attention_backward`; a mask's gradient is summed to its shape."""
    scores = product((*heads_view(Q, q_num_heads).sizes[:3], attended(K, kv_num_heads)))
    return gradient_call(
        "device_efficient_attention_backward",
        (dQ, dK, dV, dattn_mask),
        heads_view(dY, q_num_heads),
        heads_view(Q, q_num_heads),
        *(heads_view(t, kv_num_heads) for t in (K, V)),
        heads_view(Y, q_num_heads),
        view(LogSumExp),
        mask_as_stored(attn_mask),
        bool(is_causal),
        Q.rank == 3,
        factor_of(scale),
        flops=10 * product(size(s) for s in Q.shape) * attended(K, kv_num_heads),
        temporary_bytes=0 if dattn_mask is None else scores * Q.dtype.bytes,
    )
