"""The tensors of a call by name, and the same call with others of another size."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.errors import MoveError
from daceml.runtime.timing.available_memory import available_bytes
from daceml.tuning.model_call import Subject

_MOST_DIMENSIONS = 64  # of torch's
_MOST_SIZE = 2**63 - 1
_MOST_SHARE = 0.25  # of the memory that is available, for one input: a step needs several times as much


def named_tensors(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, torch.Tensor]]:
    """Tensors of a call: x, or x[0] and x.mask inside containers."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{f"input {i}": value for i, value in enumerate(args)}, **kwargs}
    found: list[tuple[str, torch.Tensor]] = []
    for name, value in bound.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                found.append((name + pytree.keystr(path), leaf))
    return found


def resized(subject: Subject, shapes: Mapping[str, Sequence[int]], *, start: Subject) -> Subject:
    """The same module, called with random tensors of other shapes.

    Args:
        shapes: name of an input -> its new shape; others stay as they are.
        start: the user's own call, whose values say from where to draw: what was drawn has fewer of them.
    Raises:
        MoveError: no input has the name, or a shape is none.
    """
    known = dict(named_tensors(subject.module, subject.args, subject.kwargs))
    own = dict(named_tensors(start.module, start.args, start.kwargs))
    changed: dict[int, torch.Tensor] = {}
    for name, shape in shapes.items():
        if name not in known:
            raise MoveError(
                f"there is no input {name!r}", why="there are " + ", ".join(known), fix="name one of them"
            )
        changed[id(known[name])] = _of_shape(own[name], name, shape)
    args, kwargs = pytree.tree_map(lambda x: changed.get(id(x), x), (subject.args, subject.kwargs))
    return Subject(subject.module, args, kwargs, training=subject.training)


def _of_shape(like: torch.Tensor, name: str, shape: Sequence[int]) -> torch.Tensor:
    if len(shape) > _MOST_DIMENSIONS:
        raise MoveError(
            f"{name} cannot have {len(shape)} dimensions",
            why=f"tensors of torch have {_MOST_DIMENSIONS} at most",
            fix="give fewer sizes",
        )
    if any(type(size) is not int or not 0 <= size <= _MOST_SIZE for size in shape):
        raise MoveError(
            f"{name} cannot have the shape {_told(shape)}", fix=f"give sizes from 0 to {_MOST_SIZE}"
        )
    # a tensor without elements still has strides, which have to be numbers of 64 bits
    needed, free = math.prod(max(size, 1) for size in shape) * like.element_size(), available_bytes()
    if free is not None and needed > _MOST_SHARE * free:
        raise MoveError(
            f"{name} cannot have the shape {list(shape)}",
            why=f"it takes {min(needed, 10**30) / 1e9:.1f} GB, and {free / 1e9:.1f} GB are available in all",
            fix="give smaller sizes",
        )
    generator = torch.Generator().manual_seed(0)
    if like.is_floating_point() or like.is_complex():
        made = torch.randn(tuple(shape), generator=generator, dtype=like.dtype)
        return made.requires_grad_(like.requires_grad)
    if like.dtype == torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator).bool()
    low, high = (int(like.min()), int(like.max())) if like.numel() else (0, 0)  # positions stay in range
    above = min(high + 1, 2**63 - 1)
    return torch.randint(min(low, above - 1), above, tuple(shape), generator=generator, dtype=like.dtype)


def _told(shape: Sequence[Any]) -> str:
    sizes = (str(n) if type(n) is int and abs(n) <= _MOST_SIZE else "…" for n in shape)
    return f"[{', '.join(sizes)}]"
