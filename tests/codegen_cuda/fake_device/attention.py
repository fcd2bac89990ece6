"""Fused attention as CUDA's kernels have it: results, logarithms of sums, and what these kernels refuse."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

Tensor = torch.Tensor
VECTOR_BYTES = 16  # heads, and rows of a mask, begin at multiples of it
ROWS = 32  # logarithms of as many queries are written at once by the memory-efficient kernel


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q.float() @ k.float().transpose(-1, -2) * factor
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores


def _check_heads(*operands: Tensor) -> None:
    for one in operands:
        if one.shape[-1] * one.element_size() % VECTOR_BYTES != 0 or one.stride(-1) != 1:
            raise ValueError(f"heads of {one.shape[-1]} elements, {one.stride(-1)} apart, are not aligned")


def _forward(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    logarithms = scores.logsumexp(-1)
    return (torch.exp(scores - logarithms.unsqueeze(-1)) @ v.float()).to(v.dtype), logarithms


def _backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    scores: Tensor,
    logarithms: Tensor,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    weights = torch.exp(scores - logarithms.unsqueeze(-1))
    dy, y = dy.float(), y.float()
    dv = weights.transpose(-1, -2) @ dy
    dscores = weights * (dy @ v.float().transpose(-1, -2) - (dy * y).sum(-1, keepdim=True))
    dq, dk = factor * dscores @ k.float(), factor * dscores.transpose(-1, -2) @ q.float()
    return dq, dk, dv, dscores


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | int | None, ...]:
    """`_scaled_dot_product_flash_attention`, for half types."""
    _check_heads(q, k, v)
    if dropout != 0 or q.element_size() != 2:
        raise NotImplementedError("flash attention is for half types, and without dropout here")
    y, logarithms = _forward(_scores(q, k, None, causal, scale), v)
    return y, logarithms, None, None, q.shape[2], k.shape[2], None, None, None


def flash_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    logarithms: Tensor,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    longest_q: int,
    longest_k: int,
    dropout: float,
    causal: bool,
    seed: Tensor,
    offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`_scaled_dot_product_flash_attention_backward`, from the logarithms that the forward pass has kept."""
    _check_heads(q, k, v, y)
    return _backward(dy, q, k, v, y, _scores(q, k, None, causal, scale), logarithms, scale)[:3]


def efficient(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    with_logarithms: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """`_scaled_dot_product_efficient_attention`; logarithms beyond the last query are infinite."""
    _check_heads(q, k, v)
    _check_bias(bias)
    if dropout != 0:
        raise NotImplementedError("attention with dropout has no stand-in")
    y, logarithms = _forward(_scores(q, k, bias, causal, scale), v)
    if not with_logarithms:
        return y, logarithms[..., :0], None, None
    beyond = -q.shape[2] % ROWS
    return y, torch.nn.functional.pad(logarithms, (0, beyond), value=math.inf), None, None


def efficient_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    y: Tensor,
    logarithms: Tensor,
    seed: Tensor,
    offset: Tensor,
    dropout: float,
    wanted: Sequence[bool],
    causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """`_scaled_dot_product_efficient_attention_backward`; a gradient that is not wanted is none."""
    _check_heads(q, k, v)
    _check_bias(bias)
    if logarithms.shape[-1] % ROWS != 0:
        raise ValueError(f"logarithms of {logarithms.shape[-1]} queries: the kernel reads {ROWS} at once")
    scores = _scores(q, k, bias, causal, scale)
    found = _backward(dy, q, k, v, y, scores, logarithms[..., : q.shape[2]], scale)
    return tuple(one if keep else None for one, keep in zip(found, wanted, strict=True))


def cudnn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    with_logarithms: bool,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | int | None, ...]:
    """`_scaled_dot_product_cudnn_attention`, which eager PyTorch prefers for half types on Hopper."""
    if dropout != 0:
        raise NotImplementedError("attention with dropout has no stand-in")
    y, logarithms = _forward(_scores(q, k, bias, causal, scale), v)
    return y, logarithms.unsqueeze(-1), None, None, q.shape[2], k.shape[2], None, None, None


def cudnn_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    logarithms: Tensor,
    seed: Tensor,
    offset: Tensor,
    bias: Tensor | None,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    longest_q: int,
    longest_k: int,
    dropout: float,
    causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`_scaled_dot_product_cudnn_attention_backward`."""
    scores = _scores(q, k, bias, causal, scale)
    return _backward(dy, q, k, v, y, scores, logarithms.reshape(scores.shape[:-1]), scale)[:3]


def _check_bias(bias: Tensor | None) -> None:
    if bias is None:
        return
    for dimension in range(3):
        apart = bias.stride(dimension)
        if bias.shape[dimension] > 1 and apart * bias.element_size() % VECTOR_BYTES != 0:
            raise ValueError(f"a mask whose dimension {dimension} is {apart} elements apart is not aligned")
