"""Triangles and diagonals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = random(2, 4, 5)

CASES = {
    "upper": Case(op="Trilu", inputs=[X]),
    "lower": Case(op="Trilu", inputs=[X], attributes={"upper": 0}),
    "lower, shifted": Case(op="Trilu", inputs=[X, np.array(-1)], constants=[1], attributes={"upper": 0}),
    "lower, shifted by data": Case(op="Trilu", inputs=[X, np.array(-1)], attributes={"upper": 0}),
    "upper, shifted beyond, by data": Case(op="Trilu", inputs=[X, np.array([7])]),
    "infinite inside": Case(
        op="Trilu", inputs=[np.full((3, 3), -np.inf, np.float32), np.array(1)], constants=[1]
    ),
    "booleans": Case(op="Trilu", inputs=[X > 0]),
    "eye": Case(op="EyeLike", inputs=[X[0]], attributes={"k": 1}),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
