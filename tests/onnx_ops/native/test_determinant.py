"""Determinants of small matrices."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises


def determinant(*shape: int, dtype: type = np.float32) -> Case:
    x = random(*shape, dtype=dtype)
    expected = np.linalg.det(x.astype(np.float64)).astype(dtype)
    return Case(op="Det", inputs=[x], expected=[expected], version=11, rtol=1e-4)


CASES = {f"order {n}": determinant(3, 2, n, n) for n in (1, 2, 3, 4)} | {
    "one matrix": determinant(3, 3, dtype=np.float64),
    "no matrices": determinant(0, 2, 2),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_large_matrices_are_refused() -> None:
    with raises(NoImplementationError, "Det", "order 5", "up to 4"):
        lowered(determinant(5, 5))
