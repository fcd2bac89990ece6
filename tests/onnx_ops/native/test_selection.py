"""Slices that a constant chooses, and tensors that are or are not there."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises


def compressed(x: np.ndarray, condition: list[bool], axis: int | None) -> Case:
    return Case(
        op="Compress",
        inputs=[x, np.array(condition)],
        constants=[1],
        attributes={} if axis is None else {"axis": axis},
        expected=[np.compress(condition, x, axis)],
    )


T, F = True, False
ROWS, COLUMNS = random(2, 5), np.array([3, -1, 0, 0])
CASES = {
    "one axis": compressed(random(4, 3), [F, T, T, F], 0),
    "inner, negative": compressed(random(2, 5, 3), [T, F, T, T, F], -2),
    "a condition that ends early": compressed(random(4, 3), [F, T], 0),
    "of all elements": compressed(random(3, 2), [T, F, F, T, T], None),
    "nothing": compressed(random(3, 2), [F, F, F], 0),
    "columns": Case(
        op="ArrayFeatureExtractor",
        domain="ai.onnx.ml",
        version=1,
        inputs=[ROWS, COLUMNS],
        expected=[ROWS[:, COLUMNS]],
    ),
    "above a threshold": Case(
        op="Binarizer",
        domain="ai.onnx.ml",
        version=1,
        inputs=[np.array([[1, 2.5, np.nan], [-np.inf, np.inf, 2]], np.float32)],
        attributes={"threshold": 2.0},
        expected=[np.array([[0, 1, 0], [0, 1, 0]], np.float32)],
    ),
    "a tensor is there": Case(
        op="OptionalHasElement", inputs=[random(2)], expected=[np.array(True)], version=18
    ),
    "nothing is there": Case(op="OptionalHasElement", inputs=[None], expected=[np.array(False)], version=18),
    "what is there": Case(
        op="OptionalGetElement", inputs=[random(2, 3)], expected=[random(2, 3)], version=18
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


@pytest.mark.parametrize(
    ("condition", "said", "facts"),
    [([T, F, T], 1, ["2 slices", "says 1"]), ([F, F, F, F, T], 1, ["condition", "slice 4 of 4"])],
)
def test_what_does_not_fit_is_refused(condition: list[bool], said: int, facts: list[str]) -> None:
    case = compressed(random(4, 3), [T], 0)
    case.inputs = [random(4, 3), np.array(condition)]
    case.expected = [random(said, 3)]
    with raises(NoImplementationError, "Compress", *facts):
        lowered(case)
