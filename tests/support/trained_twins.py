"""Train a compiled module beside its eager twin: results, gradients and buffers are the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml

DOUBLE = 1e-9
"""Some hundred roundings of float64 apart: other orders of sums."""


def double(*shape: int) -> torch.Tensor:
    """Numbers in [0.1, 1.1), the same in every run of a test that seeds."""
    return torch.rand(*shape, dtype=torch.float64) + 0.1


class WithState(nn.Module):
    """A function with a layer, a parameter and a buffer at hand."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(3, 3).double()
        self.weight = nn.Parameter(double(3))
        self.register_buffer("kept", double(3))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def twins(module: nn.Module, **options: Any) -> tuple[Any, nn.Module]:
    """A compiled module, and an equal one that is not."""
    return daceml.compile(module, **options), copy.deepcopy(module)


def compiled_backward(compiled: Any) -> bool:
    """Whether a program with a backward pass was made for a module."""
    return any(variant.backward is not None for variant in compiled.session.variants)


def same(ours: Any, theirs: Any, tolerance: float = DOUBLE) -> None:
    """Two nests of tensors are equal in structure, values, types and whether they require gradients."""
    left, structure = pytree.tree_flatten_with_path(ours)
    right, expected = pytree.tree_flatten(theirs)
    assert structure == expected
    for (path, a), b in zip(left, right, strict=True):
        where = pytree.keystr(path)
        assert type(a) is type(b), (where, a, b)
        if isinstance(a, torch.Tensor):
            assert a.requires_grad == b.requires_grad, where
            torch.testing.assert_close(
                a, b, rtol=tolerance, atol=tolerance, equal_nan=True,
                msg=lambda text, where=where: f"{where}: {text}",
            )  # fmt: skip
        else:
            assert a == b, where


def step(module: Any, inputs: Sequence[torch.Tensor], seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """One call and its backward pass: results, the gradients of inputs and parameters, and buffers."""
    module.zero_grad()
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(seed)
    results = module(*leaves)
    flowing = [y for y in pytree.tree_leaves(results) if isinstance(y, torch.Tensor) and y.requires_grad]
    if flowing:
        weights = [torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape) for y in flowing]
        sum((y * y * w).sum() for y, w in zip(flowing, weights, strict=True)).backward()
    left = {f"input {number}": x.grad for number, x in enumerate(leaves)}
    left |= {name: p.grad for name, p in module.named_parameters()}
    return results, left | {name: b.clone() for name, b in module.named_buffers()}


def trains_like(
    compiled: Any, eager: nn.Module, *inputs: torch.Tensor, steps: int = 2, tolerance: float = DOUBLE
) -> None:
    """Some steps of both are the same."""
    for number in range(steps):
        same(step(compiled, inputs, number), step(eager, inputs, number), tolerance)
