"""Upsample in the versions that had it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = random(1, 2, 3, 4)
BETWEEN = (X + np.concatenate([X[..., 1:], X[..., -1:]], -1)) / 2
CASES = {
    "nearest": Case(
        op="Upsample",
        inputs=[X, np.array([1, 1, 2, 3], np.float32)],
        constants=[1],
        version=9,
        expected=[X.repeat(2, 2).repeat(3, 3)],
    ),
    "by a fraction": Case(
        op="Upsample",
        inputs=[X, np.array([1, 1, 1, 1.5], np.float32)],
        constants=[1],
        version=9,
        expected=[X[..., [0, 0, 1, 2, 2, 3]]],
    ),
    "version 7": Case(
        op="Upsample",
        inputs=[X],
        attributes={"scales": [1.0, 1.0, 2.0, 2.0], "mode": "nearest"},
        version=7,
        expected=[X.repeat(2, 2).repeat(2, 3)],
    ),
    "linear": Case(
        op="Upsample",
        inputs=[X, np.array([1, 1, 1, 2], np.float32)],
        constants=[1],
        version=9,
        attributes={"mode": "linear"},
        expected=[np.stack([X, BETWEEN], -1).reshape(1, 2, 3, 8)],
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
