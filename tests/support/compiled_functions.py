"""Compile a function, run it, and compare with eager PyTorch: values, NaN, shapes and types."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

import daceml
from tests.support.exported_models import Lambda

FLOAT32_TOLERANCE = 1e-5
"""A few roundings of float32 apart: sums in another order, functions with an error of a unit or two."""


def same_as_eager(function: Any, *args: torch.Tensor, tolerance: float = FLOAT32_TOLERANCE) -> None:
    """Every result of the compiled function is that of the function."""
    compiled = daceml.compile(Lambda(function), backward=False)
    with torch.no_grad():
        want = pytree.tree_leaves(function(*(a.clone() for a in args)))
        got = pytree.tree_leaves(compiled(*(a.clone() for a in args)))
    assert len(got) == len(want)
    for position, (a, b) in enumerate(zip(got, want, strict=True)):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text, i=position: f"{i}: {text}"
        )
