"""Padding against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = random(3, 4, 5)
PADS = np.array([1, 0, 2, 0, 3, 1])


def pad(pads: np.ndarray, value: float | None = None, **attributes) -> Case:
    """A case of an operator whose pads are constant."""
    inputs = [X, pads] if value is None else [X, pads, np.array(value, np.float32)]
    return Case(op="Pad", inputs=inputs, attributes=attributes, constants=[1])


CASES = {
    "zeros": pad(PADS),
    "a value": pad(PADS, 1.5),
    "negative crops": Case(
        op="Pad",
        inputs=[X, np.array([-1, 0, 2, 0, -2, 1])],
        constants=[1],
        expected=[np.pad(X[1:, :2], ((0, 0), (0, 0), (2, 1)))],
    ),
    "edge": pad(PADS, mode="edge"),
    "reflect": pad(PADS, mode="reflect"),
    "wrap": pad(PADS, mode="wrap"),
    "reflect everything": pad(np.array([2, 3, 4, 2, 3, 4]), mode="reflect"),
    "axes": Case(
        op="Pad", inputs=[X, np.array([1, 2]), np.array(3, np.float32), np.array([-1])], constants=[1, 3]
    ),
    "opset 2": Case(
        op="Pad",
        inputs=[X],
        attributes={"pads": [0, 1, 0, 2, 0, 0], "value": 0.5},
        version=2,
        expected=[np.pad(X, ((0, 2), (1, 0), (0, 0)), constant_values=0.5)],
    ),
    "integers": Case(op="Pad", inputs=[np.arange(4), np.array([1, 1]), np.array(-1)], constants=[1, 2]),
    "symbolic": Case(
        op="Pad", inputs=[random(7, 2), np.array([0, 1, 0, 1])], constants=[1], symbolic={7: "N"}
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
