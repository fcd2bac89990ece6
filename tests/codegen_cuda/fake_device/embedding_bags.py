"""Sums of looked-up rows as CUDA has them: with the bag of each position, which the CPU leaves out."""

from __future__ import annotations

import torch

Tensor = torch.Tensor
MAX = 2


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    starts: Tensor,
    scaled: bool = False,
    mode: int = 0,
    sparse: bool = False,
    factors: Tensor | None = None,
    with_end: bool = False,
    padding: int = -1,
) -> tuple[Tensor | None, ...]:
    """`_embedding_bag` and `_embedding_bag_forward_only`, for sums and means."""
    if mode == MAX:
        raise NotImplementedError("maxima of bags have no stand-in")
    y = torch.ops.aten._embedding_bag(
        weight, indices, starts, scaled, mode, sparse, factors, with_end, padding
    )[0]
    bags = starts.numel() - with_end
    places = torch.arange(indices.numel(), dtype=starts.dtype)
    bag_of_place = torch.searchsorted(starts[:bags], places, right=True) - 1
    counts = torch.bincount(bag_of_place[indices != padding], minlength=bags)
    return y, bag_of_place, counts, None
