"""Cumulative sums: the gradient runs the other way."""

from __future__ import annotations

import pytest
import torch

from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.implementation_pairs import NATIVE, Case, agree


def cumulative(
    *shape: int,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: torch.dtype = torch.float32,
    op: str = "CumSum",
    **more: object,
) -> Case:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    if op == "CumProd":
        x.view(-1)[::4] = 0  # a quotient would be no number

    def total(x: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
        along = int(axis)
        given = x.flip(along) if reverse else x
        if exclusive:
            nothing = torch.full_like(given.narrow(along, 0, 1), float(op == "CumProd"))
            given = torch.cat([nothing, given.narrow(along, 0, given.shape[along] - 1)], along)
        values = given.cumsum(along) if op == "CumSum" else given.cumprod(along)
        return values.flip(along) if reverse else values

    return Case(
        op=op,
        inputs={"x": x, "axis": torch.tensor(axis)},
        outputs={"y": x},
        result="y",
        constants=("axis",),
        attributes={"exclusive": int(exclusive), "reverse": int(reverse)},
        reference=total,
        wanted=("x",),
        **more,
    )


PRODUCTS = {
    f"exclusive {e}, reverse {r}, axis {axis}": cumulative(
        3, 6, axis=axis, exclusive=e, reverse=r, op="CumProd"
    )
    for axis in (0, -1)
    for e in (False, True)
    for r in (False, True)
} | {
    "one": cumulative(1, op="CumProd"),
    "one, exclusive": cumulative(1, exclusive=True, op="CumProd"),
}


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


def test_gradients_of_products_are_those_of_torch_zeros_and_all():
    agree(PRODUCTS, forward=NATIVE, backward=NATIVE)
