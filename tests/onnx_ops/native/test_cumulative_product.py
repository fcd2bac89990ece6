"""Cumulative products: forward and backward, with and without the element itself."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises


def cumulative(x: np.ndarray, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Case:
    values = np.flip(x, axis) if reverse else x
    if exclusive:
        ones = np.ones_like(values.take([0], axis))
        values = np.concatenate([ones, values.take(range(x.shape[axis] - 1), axis)], axis)
    total = np.cumprod(values.astype(np.float64) if x.dtype.kind == "f" else values, axis)
    expected = (np.flip(total, axis) if reverse else total).astype(x.dtype)
    attributes = {"exclusive": int(exclusive), "reverse": int(reverse)}
    return Case(
        op="CumProd", inputs=[x, np.array(axis)], constants=[1], attributes=attributes, expected=[expected]
    )


X = random(3, 5, 4)
CASES = {
    **{
        f"axis {axis}, exclusive {e}, reverse {r}": cumulative(X, axis, exclusive=e, reverse=r)
        for axis in (0, 1, -1)
        for e in (False, True)
        for r in (False, True)
    },
    "integers": cumulative(np.arange(1, 13).reshape(3, 4), 1),
    "one element": cumulative(random(1), 0, exclusive=True),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_long_products_are_refused_here() -> None:
    with raises(NoImplementationError, "CumProd", "5000"):
        lowered(cumulative(random(5000), 0))
