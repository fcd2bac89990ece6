"""Cumulative sums: the gradient runs the other way."""

from __future__ import annotations

import pytest
import torch

from daceml.onnx_ops.registry import KINDS, Kind
from tests.autodiff.pairings import NATIVE, Case, agree


def cumulative(
    *shape: int,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: torch.dtype = torch.float32,
    **more: object,
) -> Case:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)

    def total(x: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
        along = int(axis)
        given = x.flip(along) if reverse else x
        sums = given.cumsum(along)
        sums = sums - given if exclusive else sums
        return sums.flip(along) if reverse else sums

    return Case(
        op="CumSum",
        inputs={"x": x, "axis": torch.tensor(axis)},
        outputs={"y": x},
        result="y",
        constants=("axis",),
        attributes={"exclusive": int(exclusive), "reverse": int(reverse)},
        reference=total,
        wanted=("x",),
        **more,
    )


CASES = {
    "first": cumulative(7, 3),
    "last, float64": cumulative(3, 33, axis=-1, dtype=torch.float64),
    "one": cumulative(1),
    "exclusive": cumulative(3, 5, axis=1, exclusive=True),
    "reverse": cumulative(3, 5, axis=1, reverse=True),
    "exclusive and reverse": cumulative(4, exclusive=True, reverse=True),
    "float16": cumulative(9, dtype=torch.float16),
    "symbolic": cumulative(11, 3, symbolic={11: "N"}),
}


@pytest.mark.parametrize("kinds", [KINDS, NATIVE])
def test_gradients_are_those_of_torch(kinds: tuple[Kind, ...]):
    _, chosen = agree(CASES, forward=kinds, backward=kinds)
    assert ("aten:cumsum_backward" in chosen) == (kinds == KINDS)
