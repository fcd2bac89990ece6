"""Dropout where nothing is dropped."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises

X = random(3, 4)
ALL = np.ones((3, 4), bool)
CASES = {
    "inference": Case(op="Dropout", inputs=[X], expected=[X, ALL]),
    "inference, said so": Case(
        op="Dropout", inputs=[X, np.float32(0.5), np.array(False)], constants=[2], expected=[X, ALL]
    ),
    "training without loss": Case(
        op="Dropout", inputs=[X, np.float32(0), np.array(True)], constants=[1, 2], expected=[X, ALL]
    ),
    "version 10": Case(op="Dropout", inputs=[X], attributes={"ratio": 0.3}, expected=[X, None], version=10),
    "version 6": Case(op="Dropout", inputs=[X], attributes={"is_test": 1}, expected=[X, None], version=6),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


@pytest.mark.parametrize(
    ("inputs", "constants", "version", "named"),
    [
        ([X, np.float32(0.5), np.array(True)], [1, 2], None, "training"),
        ([X, np.float32(0.5), np.array(True)], [1], None, "training_mode"),
        ([X], [], 6, "training"),
    ],
)
def test_training_is_refused(
    inputs: list[np.ndarray], constants: list[int], version: int | None, named: str
) -> None:
    case = Case(op="Dropout", inputs=inputs, constants=constants, expected=[X, None], version=version)
    with raises(NoImplementationError, "native:dropout", named):
        lowered(case)
