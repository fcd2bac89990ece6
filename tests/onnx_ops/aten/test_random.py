"""Draws come from torch's generator: a seed gives the numbers of eager PyTorch, in program order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.utils import _pytree as pytree

import daceml
from tests.support.exported_models import Lambda, tensor


def tensors(x: torch.Tensor) -> Any:
    return (
        torch.rand(3),
        torch.randn(4),
        torch.rand_like(x),
        torch.randn_like(x) * 2,
        x + torch.randn(3, 4, dtype=torch.float64),
        torch.empty_like(x).uniform_(1, 2),
        torch.normal(x, 2.0),
        torch.empty_like(x).exponential_(2.0),
        torch.randint(-3, 9, (5,)),
        torch.randint_like(x, 7),
    )


def choices(x: torch.Tensor) -> Any:
    p = x.sigmoid()
    return (
        torch.bernoulli(p),
        torch.bernoulli(x, 0.3),
        torch.multinomial(p, 2),
        torch.multinomial(p, 7, replacement=True),
        x[torch.randperm(3)],
    )


def masks(x: torch.Tensor) -> Any:
    """No draw needs another one: only their order in the program says which numbers each gets."""
    return (
        F.dropout(x, 0.3, True),
        F.dropout(x * 2, 0.7, True) + F.dropout(x, 0.5, True),
        F.dropout2d(x[None, :, :, None], 0.5, True),
    )


@pytest.mark.parametrize("draw", [tensors, choices, masks])
def test_draws_are_those_of_eager_pytorch(draw: Callable[[torch.Tensor], Any]):
    x = tensor(3, 4)
    compiled = daceml.compile(Lambda(draw), backward=False)
    with torch.no_grad():
        compiled(x)
        torch.manual_seed(1)
        got = pytree.tree_leaves((compiled(x), compiled(x)))
        torch.manual_seed(1)
        want = pytree.tree_leaves((draw(x), draw(x)))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    half = len(got) // 2
    assert any(not torch.equal(a, b) for a, b in zip(got[:half], got[half:], strict=True)), (
        "each call draws anew"
    )
