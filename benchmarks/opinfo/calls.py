"""All that a caller can see of one call: results, memory in common, changed arguments, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(kw_only=True)
class Seen:
    """What one call came to.

    Attributes:
        error: what it raised; nothing else is known then.
        structure: how the leaves are nested.
        results: the leaves.
        aliases: of each result, which arguments and results share its memory, from where, and which it is.
        inputs: arguments after the call.
        gradients: of arguments that require one; None where it got none.
        generator: the state of torch's generator after the call.
    """

    error: Exception | None = None
    structure: Any = None
    results: list[Any] = field(default_factory=list[Any])
    aliases: list[list[str]] = field(default_factory=list[list[str]])
    inputs: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    gradients: list[torch.Tensor | None] | None = None
    generator: torch.Tensor | None = None


def call(
    function: Callable[..., Any], tensors: Sequence[torch.Tensor], *, gradients: bool, seed: int
) -> Seen:
    """Call with these tensors, and differentiate what can be."""
    torch.manual_seed(seed)
    try:
        with torch.set_grad_enabled(gradients):
            returned = function(*tensors)
        generator = torch.get_rng_state()
        leaves, structure = pytree.tree_flatten(returned)
        return Seen(
            structure=structure,
            results=leaves,
            aliases=_aliases(leaves, tensors),
            inputs=list(tensors),
            gradients=_gradients(leaves, tensors, seed) if gradients else None,
            generator=generator,
        )
    except Exception as error:
        return Seen(error=error)


def _aliases(leaves: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[list[str]]:
    found: list[list[str]] = []
    named = [(f"argument {i}", t) for i, t in enumerate(tensors)]
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            found.append([text for name, other in named if (text := _relation(leaf, other, name))])
            named.append((f"result {number}", leaf))
        else:
            found.append([])
    return found


def _relation(one: torch.Tensor, other: torch.Tensor, name: str) -> str:
    if one is other:
        return f"is {name}"
    place, there = _place(one), _place(other)
    if place is None or there is None or place[0] != there[0]:
        return ""
    return f"lies in {name} from {place[1] - there[1]:+d}"


def _place(tensor: torch.Tensor) -> tuple[int, int] | None:
    if tensor.layout is not torch.strided or tensor.is_nested or not tensor.numel():
        return None
    storage = tensor.untyped_storage()
    return (storage.data_ptr(), int(tensor.storage_offset())) if storage.data_ptr() else None


def _gradients(
    leaves: Sequence[Any], tensors: Sequence[torch.Tensor], seed: int
) -> list[torch.Tensor | None]:
    wanted = [t for t in tensors if t.requires_grad]
    moving = [y for y in leaves if isinstance(y, torch.Tensor) and y.requires_grad]
    if not wanted or not moving:
        return []
    generator = torch.Generator().manual_seed(seed + 11)
    given = [_cotangent(y, generator) for y in moving]
    return list(torch.autograd.grad(moving, wanted, given, allow_unused=True))


def _cotangent(result: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Numbers of float32 in the result's type."""
    kind = torch.complex64 if result.is_complex() else torch.float32
    if result.layout is not torch.strided or result.is_nested:
        return torch.ones_like(result)
    return torch.randn(result.shape, generator=generator, dtype=kind).to(result.dtype)
