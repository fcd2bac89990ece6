"""Several uses as one module, its gradients, and finite differences of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.gradcheck import GradcheckError, gradcheck

from benchmarks.gradient_checks.compare import Observed
from benchmarks.gradient_checks.draws import Draw
from benchmarks.operators.draws import Chance

# Finite differences call a program twice for each element of its tensors.
_MOST_ELEMENTS = 64


def module_of(draws: Sequence[Draw]) -> nn.Module:
    """A module that takes the tensors of all uses and returns one tuple of results for each."""

    class Uses(nn.Module):
        def forward(self, *tensors: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], ...]:
            found: list[tuple[torch.Tensor, ...]] = []
            for draw in draws:
                given, tensors = tensors[: len(draw.tensors)], tensors[len(draw.tensors) :]
                results = draw.call(*given, **draw.attributes)
                found.append((results,) if isinstance(results, torch.Tensor) else tuple(results))
            return tuple(found)

    return Uses()


def tensors_of(draw: Draw, number: int, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """The tensors of a use, as leaves; some have strides of their own.

    Args:
        dtype: of floats that were rounded to the element type of the use before.
    """
    chance = Chance(number + 3_000_000)
    found: list[torch.Tensor] = []
    for i, array in enumerate(draw.tensors):
        tensor = torch.from_numpy(np.array(array))
        if tensor.is_floating_point():
            tensor = tensor.to(draw.torch_dtype()).to(dtype or draw.torch_dtype())
        tensor = tensor if i in draw.contiguous else _with_strides(tensor, chance)
        found.append(tensor.requires_grad_(tensor.is_floating_point() and i not in draw.fixed))
    return found


def _with_strides(tensor: torch.Tensor, chance: Chance) -> torch.Tensor:
    if tensor.ndim == 0 or not chance.one_in(3):
        return tensor
    if chance.one_in(2):
        order = chance.permutation(tensor.ndim)
        return tensor.permute(order).contiguous().permute(*np.argsort(order).tolist())
    wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1))
    wide[..., 1::2] = tensor
    return wide[..., 1::2]


def observe(
    module: Callable[..., Any],
    draws: Sequence[Draw],
    numbers: Sequence[int],
    dtype: torch.dtype | None = None,
) -> list[Observed]:
    """Results and gradients of each use, for random cotangents.

    Args:
        dtype: of all floats, instead of that of each use.
    """
    tensors = [tensors_of(draw, number, dtype) for draw, number in zip(draws, numbers, strict=True)]
    torch.manual_seed(numbers[0])
    results = module(*(t for given in tensors for t in given))
    moving = [[r for r in found if r.requires_grad] for found in results]
    generator = torch.Generator().manual_seed(numbers[0])
    cotangents = [
        torch.randn(r.shape, generator=generator, dtype=torch.float64).to(torch.bfloat16).to(r.dtype)
        for found in moving
        for r in found
    ]
    wanted = [t for given in tensors for t in given if t.requires_grad]
    flat = [r for found in moving for r in found]
    gradients: Sequence[torch.Tensor | None] = [None] * len(wanted)
    if flat and wanted:
        gradients = torch.autograd.grad(flat, wanted, cotangents, allow_unused=True)
    left = iter(gradients)
    return [
        Observed(results=found, gradients=[next(left) for t in given if t.requires_grad])
        for given, found in zip(tensors, results, strict=True)
    ]


def finite_difference_problem(
    module: Callable[..., Any], draws: Sequence[Draw], numbers: Sequence[int], place: int
) -> str | None:
    """In what gradients of one of the uses differ from finite differences, or None.

    They apply to smooth functions of few elements in float64.
    """
    draw = draws[place]
    if not draw.smooth or draw.dtype != "float64":
        return None
    tensors = [tensors_of(other, number) for other, number in zip(draws, numbers, strict=True)]
    own = tensors[place]
    wanted = [t for t in own if t.requires_grad]
    # gradcheck refuses the strides that empty tensors may have
    if not wanted or not all(t.numel() for t in wanted) or sum(t.numel() for t in wanted) > _MOST_ELEMENTS:
        return None
    others = [[t.detach() if i != place else t for t in given] for i, given in enumerate(tensors)]
    # the same variant of the module: whether a tensor requires a gradient is guarded
    others = [
        [t.requires_grad_(s.requires_grad) for t, s in zip(a, b, strict=True)]
        for a, b in zip(others, tensors, strict=True)
    ]

    def one(*moved: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(moved)
        others[place] = [next(left) if t.requires_grad else t for t in own]
        results = module(*(t for given in others for t in given))[place]
        return tuple(r for r in results if r.requires_grad and r.dtype == torch.float64)

    try:
        if one(*wanted):
            gradcheck(one, wanted, check_batched_grad=False, atol=1e-5, rtol=1e-4)
    except (GradcheckError, RuntimeError) as error:
        return f"finite differences: {' '.join(str(error).split())[:300]}"
    return None
