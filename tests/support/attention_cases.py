"""Attention with masks, grouped heads and scales, beside torch's own."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.support.implementation_pairs import Case


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def attention(
    batch: int,
    heads: int,
    rows: int,
    columns: int,
    features: int,
    *,
    groups: int | None = None,
    width: int | None = None,
    mask: torch.Tensor | None = None,
    of_mask: bool = False,
    causal: bool = False,
    scale: float | None = None,
    dtype: torch.dtype = torch.float32,
    **more: Any,
) -> Case:
    """Attention of so many queries (`rows`) to so many keys (`columns`).

    Args:
        groups: heads of the keys and values, as many as the queries have unless said otherwise.
        width: features of a value, as many as of a key unless said otherwise.
        of_mask: whether the gradient of the mask is wanted.
        more: of `Case`.
    """
    groups, width = groups or heads, width or features
    y = torch.empty(batch, heads, rows, width, dtype=dtype)
    logarithms = torch.float64 if dtype == torch.float64 else torch.float32

    def reference(
        Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, attn_mask: torch.Tensor | None
    ) -> torch.Tensor:
        return scaled_dot_product_attention(
            Q, K, V, attn_mask, is_causal=causal, scale=scale, enable_gqa=groups != heads
        )

    return Case(
        op="AttentionSaving",
        domain="daceml",
        inputs={
            "Q": numbers(batch, heads, rows, features, dtype=dtype),
            "K": numbers(batch, groups, columns, features, dtype=dtype, seed=1),
            "V": numbers(batch, groups, columns, width, dtype=dtype, seed=2),
            "attn_mask": mask,
        },
        outputs={"Y": y, "LogSumExp": torch.empty(batch, heads, rows, dtype=logarithms)},
        attributes={"is_causal": int(causal), **({"scale": scale} if scale else {})},
        reference=reference,
        wanted=("Q", "K", "V", *(("attn_mask",) if of_mask else ())),
        **more,
    )


def some_rows_without_keys(*shape: int) -> torch.Tensor:
    """A mask whose second row hides every key, and its first row one of them."""
    mask = numbers(*shape)
    mask[..., 1, :] = -torch.inf
    mask[..., 0, 2] = -torch.inf
    return mask
