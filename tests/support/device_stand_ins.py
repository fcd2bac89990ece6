"""torch's operators for CUDA devices, computed on the processor in plain PyTorch.

A stand-in checks what the kernel of a device demands of its operands (strides, types, padding), and gives
results of the shapes and strides that torch's meta kernels promise, so a compiled program meets there what
it would meet on a device, but for the last bits.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from daceml.onnx_ops import registry
from daceml.onnx_ops.registry import DEVICES

Operator = Callable[..., Any]

FLASH = "_scaled_dot_product_flash_attention"
# As `aten_device.h` calls it on a processor: without results that are numbers
_EMULATED = (
    "emulated_flash_attention(Tensor query, Tensor key, Tensor value, float dropout_p, bool is_causal, "
    "bool return_debug_mask, float? scale) -> (Tensor, Tensor)"
)


@contextmanager
def stand_ins(**operators: Operator) -> Generator[list[str]]:
    """Register operators of `aten` for the processor, and let implementations for devices run there.

    Yields:
        names of the operators that were called, in order.
    """
    called: list[str] = []
    registry.load_implementations()
    kept = {key: list(rows) for key, rows in registry._registered.items()}
    library, ours = torch.library.Library("aten", "IMPL"), torch.library.Library("daceml", "FRAGMENT")

    def noting(name: str, operator: Operator) -> Operator:
        def noted(*operands: Any, **named: Any) -> Any:
            called.append(name)
            return operator(*operands, **named)

        return noted

    try:
        for name, operator in operators.items():
            library.impl(name, noting(name, operator), "CPU")
        if FLASH in operators:
            ours.define(_EMULATED)
            ours.impl("emulated_flash_attention", lambda *operands: _of_aten(FLASH)(*operands)[:2], "CPU")
        for rows in registry._registered.values():
            rows[:] = [
                dataclasses.replace(row, devices=DEVICES, rank=0) if row.devices == ("cuda",) else row
                for row in rows
            ]
        yield called
    finally:
        library._destroy()
        ours._destroy()
        for key, rows in kept.items():
            registry._registered[key][:] = rows


def _of_aten(name: str) -> Operator:
    packet = getattr(torch.ops.aten, name)

    def call(*operands: Any) -> Any:
        *rest, scale = operands
        return packet(*rest, scale=scale)

    return call


def _weights(
    q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None, causal: bool, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and logarithms in float64; a row without keys has weights 0 and the logarithm -inf."""
    scores = q.double() @ k.double().mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if bias is not None:
        scores = scores + bias.double()
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
    logarithms = torch.logsumexp(scores, -1)
    return torch.exp(scores - logarithms.unsqueeze(-1)).nan_to_num(nan=0.0), logarithms


def _demand_heads(*operands: torch.Tensor) -> None:
    for operand in operands:
        assert operand.dim() == 4 and operand.stride(-1) == 1, "a kernel reads vectors of a head"
        assert operand.shape[-1] * operand.element_size() % 16 == 0


def _demand_bias(bias: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> None:
    assert bias.shape == (*q.shape[:3], k.shape[2]) and bias.dtype == q.dtype
    assert bias.stride(-1) == 1
    repeats = (d for d in range(3) if bias.shape[d] > 1)
    assert all(bias.stride(d) % 8 == 0 for d in repeats), "rows begin at multiples of 8 elements"


def _transposed(found: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[B, H, M, K] as the kernel writes it: [B, M, H, K] in memory."""
    return found.to(dtype).transpose(1, 2).contiguous().transpose(1, 2)


def efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """`_scaled_dot_product_efficient_attention`."""
    assert dropout_p == 0 and query.dtype in (torch.float32, torch.float16, torch.bfloat16)
    _demand_heads(query, key, value)
    if attn_bias is not None:
        _demand_bias(attn_bias, query, key)
    weights, logarithms = _weights(query, key, attn_bias, is_causal, scale)
    rows = query.shape[2]
    whole = torch.full((*query.shape[:2], -(-rows // 32) * 32 if compute_log_sumexp else 0), math.inf)
    if compute_log_sumexp:
        whole[..., :rows] = logarithms
    seed = torch.empty((), dtype=torch.long)
    return _transposed(weights @ value.double(), query.dtype), whole, seed, seed.clone()


def efficient_backward(
    grad_out_: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """`_scaled_dot_product_efficient_attention_backward`: it trusts the output and logarithms it is given."""
    rows = query.shape[2]
    _demand_heads(grad_out_, query, key, value, out)
    assert dropout_p == 0 and philox_seed.dtype == philox_offset.dtype == torch.long
    assert logsumexp.shape[-1] == -(-rows // 32) * 32 and logsumexp.is_contiguous()
    assert torch.isposinf(logsumexp[..., rows:]).all()
    if attn_bias is not None:
        _demand_bias(attn_bias, query, key)
    found = _gradients(grad_out_, query, key, value, attn_bias, out, logsumexp[..., :rows], is_causal, scale)
    of_bias = torch.empty(0)
    if grad_input_mask[3]:
        assert attn_bias is not None
        columns = attn_bias.shape[-1]
        of_bias = torch.zeros(*attn_bias.shape[:-1], -(-columns // 16) * 16, dtype=query.dtype)[..., :columns]
        of_bias.copy_(found[3])
    return (*(_transposed(g, query.dtype) for g in found[:3]), of_bias)


def _gradients(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    logarithms: torch.Tensor,
    causal: bool,
    scale: float | None,
) -> list[torch.Tensor]:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q.double() @ k.double().mT * factor + (0 if bias is None else bias.double())
    weights = torch.exp(scores - logarithms.double().unsqueeze(-1)).nan_to_num(nan=0.0)
    if causal:
        weights = weights.tril()
    outer = dy.double() @ v.double().mT - (dy.double() * y.double()).sum(-1, keepdim=True)
    inner = weights * outer
    return [inner @ k.double() * factor, inner.mT @ q.double() * factor, weights.mT @ dy.double(), inner]


def flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_flash_attention`: the result lies in memory as the queries do."""
    assert dropout_p == 0 and not return_debug_mask and query.dtype in (torch.float16, torch.bfloat16)
    _demand_heads(query, key, value)
    weights, logarithms = _weights(query, key, None, is_causal, scale)
    out = torch.empty_like(query).copy_(weights @ value.double())
    none, seed = torch.empty(0), torch.empty(2, dtype=torch.uint64)
    rest = (query.shape[2], key.shape[2], seed, torch.empty((), dtype=torch.uint64), none)
    return (out, logarithms.float(), none, none.clone(), *rest)


def flash_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """`_scaled_dot_product_flash_attention_backward`; lengths would choose kernels of ragged batches."""
    assert cum_seq_q is None and cum_seq_k is None and dropout_p == 0
    assert (max_q, max_k) == (query.shape[2], key.shape[2])
    assert philox_seed.dtype == torch.uint64 and philox_seed.numel() == 2 and philox_offset.numel() > 0
    assert logsumexp.shape == query.shape[:3]
    _demand_heads(grad_out, query, key, value, out)
    found = _gradients(grad_out, query, key, value, None, out, logsumexp, is_causal, scale)
    return tuple(torch.empty_like(t).copy_(g) for t, g in zip((query, key, value), found[:3], strict=True))


ATTENTION = {
    "_scaled_dot_product_efficient_attention": efficient,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    FLASH: flash,
    "_scaled_dot_product_flash_attention_backward": flash_backward,
}
