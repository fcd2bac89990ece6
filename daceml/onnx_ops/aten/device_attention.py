"""Scaled dot-product attention on CUDA devices by torch's fused kernels: no matrix of scores in memory.

Of the two kernels the one is taken that torch's own selection would take: first the one without masks for
half types (FlashAttention), then the one for masks and float32 (xFormers' memory-efficient attention). What
neither takes stays loops and products. Heads may be a dimension of their own, or stand side by side in rows,
`[batch, length, heads * features]`, which is how the memory-efficient kernel writes its results.
"""

from __future__ import annotations

import dace

from daceml.onnx_ops.aten.attention import factor_of, mask_strides
from daceml.onnx_ops.aten.gradients import handed
from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import divide, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, TensorView
from daceml.sdfg.sizes import Size, product, size

FLASH, EFFICIENT = "cuda_flash", "cuda_efficient"
_HALVES = (dace.float16, dace.bfloat16)
# Of compute capability, times 10: FlashAttention, and bfloat16 in tensor cores
_AMPERE = 80
_WIDEST_FLASH = 256
# Bytes that the kernels load at once, within a head
_TOGETHER = 16


def _heads_of(X: Tensor | Output, heads: int | None) -> tuple[Size, Size, Size, Size] | str:
    """Batch, heads, length and features, or why there are none."""
    if X.rank == 4:
        batch, found, length, features = (size(s) for s in X.shape)
        return batch, found, length, features
    if X.rank != 3 or heads is None:
        return "torch's kernels take [batch, heads, length, features]"
    batch, length, columns = (size(s) for s in X.shape)
    features = divide(columns, heads)
    if features is None:
        return f"{columns} features are not {heads} heads"
    return batch, heads, length, size(features)


def heads_view(X: Tensor | Output, heads: int | None) -> TensorView:
    """An operand as [batch, heads, length, features], wherever its heads stand."""
    found = _heads_of(X, heads)
    assert not isinstance(found, str), "refused before"
    if X.rank == 4:
        return view(X)
    batch, count, length, features = found
    row = count * features
    return view(X, (batch, count, length, features), (length * row, features, row, 1))


def attended(K: Tensor, heads: int | None) -> Size:
    """How many keys there are."""
    return heads_view(K, heads).sizes[2]


def mask_as_stored(mask: Tensor | None) -> TensorView | None:
    """A mask in four dimensions; the call repeats it, for it may have to lie otherwise in memory first."""
    return None if mask is None else view(mask, (*(1,) * (4 - mask.rank), *mask.shape))


def _shape_refusal(
    Q: Tensor, K: Tensor, V: Tensor, is_causal: int, q_num_heads: int | None, kv_num_heads: int | None
) -> str | None:
    found = [_heads_of(X, h) for X, h in ((Q, q_num_heads), (K, kv_num_heads), (V, kv_num_heads))]
    for one in found:
        if isinstance(one, str):
            return one
    q, k, v = (one for one in found if not isinstance(one, str))
    if len({X.rank for X in (Q, K, V)}) > 1:
        return "heads stand in different places"
    if not same(q[1], k[1]) or not same(k[1], v[1]):
        return "grouped heads"
    if not same(q[3], v[3]):
        return "values and queries differ in width"
    if is_causal and not same(q[2], k[2]):
        return "is_causal with queries and keys of different length"
    width = q[3]
    if not isinstance(width, int):
        return "the width of a head is symbolic"
    if width * Q.dtype.bytes % _TOGETHER:
        return f"a head of {width} elements is not a multiple of {_TOGETHER} bytes"
    return no_empty_operand(Q, K, V)


def efficient_refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Y: Tensor,
    attn_mask: Tensor | None,
    is_causal: int,
    as_spelled: int | None,
    softcap: float | None,
    q_num_heads: int | None,
    kv_num_heads: int | None,
    architecture: int | None,
) -> str | None:
    """Why torch's memory-efficient attention does not take these operands."""
    if softcap:
        return "torch's kernels do not cap scores"
    if Q.dtype not in (dace.float32, *_HALVES):
        return f"torch's kernels are for float32 and half types, not for {Q.dtype.to_string()}"
    if Q.dtype == dace.bfloat16 and architecture is not None and architecture < _AMPERE:
        return f"bfloat16 takes compute capability 8.0, the device has {architecture / 10:.1f}"
    return (
        float_operands(Q, K, V, Y)
        or _shape_refusal(Q, K, V, is_causal, q_num_heads, kv_num_heads)
        or _mask_refusal(Q, K, attn_mask, is_causal, as_spelled, q_num_heads, kv_num_heads)
    )


def _mask_refusal(
    Q: Tensor,
    K: Tensor,
    mask: Tensor | None,
    is_causal: int,
    as_spelled: int | None,
    q_num_heads: int | None,
    kv_num_heads: int | None,
) -> str | None:
    if mask is None:
        return None
    if as_spelled:
        return "a row of hidden scores alone is NaN where attention is spelled out, and not in torch's kernel"
    if is_causal:
        return "a mask together with is_causal"
    if mask.dtype != Q.dtype:
        return f"the mask is {mask.dtype.to_string()}, the operands are {Q.dtype.to_string()}"
    q, k = _heads_of(Q, q_num_heads), _heads_of(K, kv_num_heads)
    assert not isinstance(q, str), "refused before"
    assert not isinstance(k, str), "refused before"
    scores = (*q[:3], k[2])
    if mask.rank > 4 or mask_strides(mask.shape, scores) is None:
        return f"a mask of shape {list(mask.shape)} for scores of shape {list(scores)}"
    if mask.rank == 0 or not same(mask.shape[-1], k[2]):
        return "a mask that is the same for all keys"
    return None


def flash_refusal(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Y: Tensor,
    attn_mask: Tensor | None,
    is_causal: int,
    softcap: float | None,
    q_num_heads: int | None,
    kv_num_heads: int | None,
    architecture: int | None,
) -> str | None:
    """Why torch's FlashAttention does not take these operands."""
    if softcap:
        return "torch's kernels do not cap scores"
    if attn_mask is not None:
        return "FlashAttention has no mask"
    if Q.dtype not in _HALVES:
        return f"FlashAttention is for half types, not for {Q.dtype.to_string()}"
    if architecture is not None and architecture < _AMPERE:
        return f"FlashAttention takes compute capability 8.0, the device has {architecture / 10:.1f}"
    refused = float_operands(Q, K, V, Y) or _shape_refusal(Q, K, V, is_causal, q_num_heads, kv_num_heads)
    if refused is not None:
        return refused
    _, _, _, width = heads_view(Q, q_num_heads).sizes
    if isinstance(width, int) and width > _WIDEST_FLASH:
        return f"a head of {width} elements: FlashAttention has at most {_WIDEST_FLASH}"
    return None


def _call(
    function: str,
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    Y: Output,
    LogSumExp: Output | None,
    masks: tuple[TensorView | None, ...],
    is_causal: int,
    scale: float | None,
    q_num_heads: int | None,
    kv_num_heads: int | None,
) -> AtenCall:
    return AtenCall(
        function=function,
        arguments=(
            *map(handed, (Y, LogSumExp)),
            heads_view(Q, q_num_heads),
            *(heads_view(t, kv_num_heads) for t in (K, V)),
            *masks,
            bool(is_causal),
            Q.rank == 3,
            factor_of(scale),
        ),
        writes=Y.name,
        more=() if LogSumExp is None else (LogSumExp.name,),
        flops=4 * product(size(s) for s in Q.shape) * attended(K, kv_num_heads),
    )


@implements(
    "AttentionSaving", domain="daceml", kind="aten", name=FLASH, when=flash_refusal, devices=("cuda",)
)
@implements("Attention", kind="aten", name=FLASH, when=flash_refusal, devices=("cuda",))
def flash_attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None,
    Y: Output,
    LogSumExp: Output | None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    as_spelled: int = 0,
    mask_hides: int = 0,
) -> AtenCall:
    """`aten::_scaled_dot_product_flash_attention`; logarithms are handed over where they are wanted."""
    return _call(
        "device_flash_attention", Q, K, V, Y, LogSumExp, (), is_causal, scale, q_num_heads, kv_num_heads
    )


@implements(
    "AttentionSaving",
    domain="daceml",
    kind="aten",
    name=EFFICIENT,
    when=efficient_refusal,
    devices=("cuda",),
)
@implements("Attention", kind="aten", name=EFFICIENT, when=efficient_refusal, devices=("cuda",))
def efficient_attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None,
    Y: Output,
    LogSumExp: Output | None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    as_spelled: int = 0,
    mask_hides: int = 0,
) -> AtenCall:
    """`aten::_scaled_dot_product_efficient_attention`, which computes logarithms where they are wanted."""
    mask = (mask_as_stored(attn_mask),)
    return _call(
        "device_efficient_attention", Q, K, V, Y, LogSumExp, mask, is_causal, scale, q_num_heads, kv_num_heads
    )
