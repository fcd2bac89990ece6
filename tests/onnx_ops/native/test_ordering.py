"""The first of few elements, in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises

SPECIALS = np.array(
    [[np.nan, 1, np.inf, 1], [-np.inf, np.nan, np.nan, 3], [0.0, -0.0, -np.inf, 0.0]], np.float32
)


def first(x: np.ndarray, k: int, axis: int = -1, *, largest: bool = True) -> Case:
    """torch's stable sort: NaN is the largest number, and of equal elements the first comes first."""
    values, places = torch.from_numpy(x).sort(dim=axis, descending=largest, stable=True)
    chosen = torch.arange(k)
    return Case(
        op="TopK",
        inputs=[x, np.array([k])],
        constants=[1],
        attributes={"axis": axis, "largest": int(largest)},
        expected=[t.index_select(axis, chosen).numpy() for t in (values, places)],
    )


CASES = {
    "largest": first(random(3, 8), 2),
    "smallest": first(random(3, 8), 3, largest=False),
    "an outer axis": first(random(4, 7, 3), 5, 1),
    "all": first(random(2, 5), 5),
    "one of one": first(random(3, 1), 1),
    "none": first(random(3, 4), 0),
    "no rows": first(random(0, 4), 2),
    "as many as may be": first(random(2, 8), 7),
    "ties": first(np.array([[2, 1, 2, 1, 2], [5, 5, 5, 5, 5]], np.int64), 4),
    "ties, smallest": first(np.array([[2, 1, 2, 1, 2], [5, 5, 5, 5, 5]], np.int64), 4, largest=False),
    "specials": first(SPECIALS, 4),
    "specials, smallest": first(SPECIALS, 4, largest=False),
    "float64": first(random(3, 6, dtype=np.float64), 2),
    "float16": first(random(3, 6, dtype=np.float16), 2),
    "unsigned": first(np.array([[200, 3, 255, 0]], np.uint8), 3),
    "symbolic rows": Case(
        op="TopK",
        inputs=[random(13, 6), np.array([2])],
        constants=[1],
        outputs=2,
        symbolic={13: "N"},
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_long_rows_are_left_to_a_sort() -> None:
    with raises(NoImplementationError, "TopK", "9 elements"):
        lowered(first(random(2, 9), 3))
