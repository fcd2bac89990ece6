"""The same call with another number of samples: who shares a leading dimension has them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from daceml.errors import ExplorationError


def samples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many samples a call has: the leading dimension of the first tensor that has dimensions.

    Raises:
        ExplorationError: no tensor has any, or that one has no samples.
    """
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.dim()]
    if tensors and tensors[0].shape[0]:
        return int(tensors[0].shape[0])
    raise ExplorationError(
        "the number of samples cannot vary",
        why="the first tensor of the call is empty"
        if tensors
        else "no argument of the call is a tensor whose leading dimension could be that number",
        fix="leave batches out",
    )


def with_samples(
    args: tuple[Any, ...], kwargs: dict[str, Any], count: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with the first samples only, or with all of them again and again.

    Tensors with another leading dimension are given as they are.

    Raises:
        ExplorationError: the number is none, or nothing has samples.
    """
    if count < 1:
        raise ExplorationError(f"a batch of {count} samples", fix="give a number from 1 on")
    given = samples(args, kwargs)

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.dim() or leaf.shape[0] != given:
            return leaf
        times = -(-count // given)
        found = leaf.detach() if times == 1 else leaf.detach().repeat(times, *[1] * (leaf.dim() - 1))
        return found[:count].clone().requires_grad_(leaf.requires_grad)

    changed_args, changed_kwargs = pytree.tree_map(changed, (args, kwargs))
    return changed_args, changed_kwargs


def shared_samples(
    ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], counts: tuple[int, int]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Results that two numbers of samples have in common: those that lead with the number of samples, as far
    as both go.

    Args:
        counts: of ours and of theirs.
    """
    few = min(counts)
    names = [
        name
        for name in ours.keys() & theirs.keys()
        if ours[name].dim()
        and (ours[name].shape[0], theirs[name].shape[0]) == counts
        and ours[name].shape[1:] == theirs[name].shape[1:]
    ]
    return {n: ours[n][:few] for n in sorted(names)}, {n: theirs[n][:few] for n in sorted(names)}
