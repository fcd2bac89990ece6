"""Softmax against torch and the ONNX reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = random(2, 3, 4, 5)
MASKED = np.array([[-np.inf, -np.inf, -np.inf], [0, -np.inf, 1]], np.float32)

CASES = {
    **{
        f"{op} {axis}": Case(op=op, inputs=[X], attributes={"axis": axis})
        for op in ("Softmax", "LogSoftmax")
        for axis in (0, 1, 2, -1)
    },
    "opset 11 flattens": Case(
        op="Softmax",
        inputs=[X],
        attributes={"axis": 2},
        version=11,
        expected=[(lambda e: e / e.sum((2, 3), keepdims=True))(np.exp(X))],
    ),
    "a row of -inf": Case(
        op="Softmax",
        inputs=[MASKED],
        expected=[np.array([[np.nan] * 3, [0.26894143, 0, 0.7310586]], np.float32)],
    ),
    "large": Case(op="Softmax", inputs=[np.array([[1000.0, 0, 999]], np.float32)]),
    "large log": Case(
        op="LogSoftmax",
        inputs=[np.array([[1000.0, 0, 999]], np.float32)],
        expected=[np.array([[-0.3132617, -1000.3132617, -1.3132617]], np.float32)],
    ),
    "size 1": Case(op="Softmax", inputs=[random(3, 1)]),
    "symbolic": Case(op="Softmax", inputs=[random(7, 9)], symbolic={7: "N"}),
    "float16": Case(op="Softmax", inputs=[X.astype(np.float16)], rtol=1e-3, atol=1e-3),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
