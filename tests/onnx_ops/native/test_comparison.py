"""Comparisons and logic."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X, Y = random(3, 1, 5), random(4, 1)
X[0, 0, 0] = np.nan
YES, NO = random(3, 4) > 0, random(4, seed=1) > 0

CASES = {
    **{
        op: Case(op=op, inputs=[X, Y]) for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{op: Case(op=op, inputs=[YES, NO]) for op in ("And", "Or", "Xor")},
    "Not": Case(op="Not", inputs=[YES]),
    "Equal of booleans": Case(op="Equal", inputs=[YES, NO]),
    "Equal to a constant": Case(op="Equal", inputs=[np.arange(5), np.array(3)], constants=[1]),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
