"""Attention in training by torch's fused kernels: no matrix of scores in memory, forward and backward."""

from __future__ import annotations

from daceml.onnx_ops.aten.attention import attention_refusal, factor_of, mask_view
from daceml.onnx_ops.aten.gradients import gradient_call, handed
from daceml.onnx_ops.aten.views import GRADIENTS, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import product


def _refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Y: Output | None,
    attn_mask: Tensor | None,
    is_causal: int,
    as_spelled: int,
) -> str | None:
    if Y is None:
        return "only the logarithms are wanted"
    if as_spelled and is_causal:
        return "spelled-out attention has its mask as an operand"
    if as_spelled and not same(Q.shape[1], K.shape[1]):
        return "spelled-out attention has as many heads of keys as of queries"
    return attention_refusal(Q, K, V, Y, attn_mask, 0.0, is_causal)


@implements("AttentionSaving", domain="daceml", kind="aten", name="flash", when=_refusal, devices=("cpu",))
def attention_saving(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None,
    Y: Output,
    LogSumExp: Output | None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    as_spelled: int = 0,
    mask_hides: int = 0,
) -> AtenCall:
    """Forward of `aten::_scaled_dot_product_flash_attention_for_cpu` with its logarithms of sums."""
    return AtenCall(
        function="attention_spelled" if as_spelled else "attention_saving",
        arguments=(
            *map(handed, (Y, LogSumExp)),
            *(view(t) for t in (Q, K, V)),
            mask_view(attn_mask, Q, K),
            bool(mask_hides if as_spelled else is_causal),
            factor_of(scale),
        ),
        writes=Y.name,
        more=() if LogSumExp is None else (LogSumExp.name,),
        flops=4 * product(Q.shape) * K.shape[2],
    )


def _gradient_refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    dY: Tensor,
    attn_mask: Tensor | None,
    dattn_mask: Output | None,
    is_causal: int,
) -> str | None:
    if dattn_mask is not None:
        return "torch's kernel gives no gradient of the mask"
    return attention_refusal(Q, K, V, dY, attn_mask, 0.0, is_causal)


@implements(
    "AttentionSavingGrad",
    domain=GRADIENTS,
    kind="aten",
    name="flash_backward",
    when=_gradient_refusal,
    devices=("cpu",),
)
def attention_gradient(
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
    """`aten::_scaled_dot_product_flash_attention_for_cpu_backward`."""
    return gradient_call(
        "attention_spelled_backward" if as_spelled else "attention_backward",
        (dQ, dK, dV),
        *(view(t) for t in (dY, Q, K, V, Y, LogSumExp)),
        mask_view(attn_mask, Q, K),
        bool(mask_hides if as_spelled else is_causal),
        factor_of(scale),
        flops=10 * product(Q.shape) * K.shape[2],
    )
