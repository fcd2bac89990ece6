"""Rotary position embedding."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises

POSITIONS = np.array([[4, 0, 3], [1, 1, 2]])


def rotary(x: np.ndarray, width: int, *, positions: bool = True, **attributes: int) -> Case:
    shape = (5, width // 2) if positions else (2, 3, width // 2)
    inputs = [x, random(*shape, seed=1), random(*shape, seed=2), POSITIONS if positions else None]
    return Case(op="RotaryEmbedding", inputs=inputs, attributes=attributes)


CASES = {
    "halves": rotary(random(2, 4, 3, 6), 6),
    "pairs": rotary(random(2, 4, 3, 6), 6, interleaved=1),
    "a part of the features": rotary(random(2, 4, 3, 6), 4, rotary_embedding_dim=4),
    "a part, in pairs": rotary(random(2, 1, 3, 6), 4, rotary_embedding_dim=4, interleaved=1),
    "heads in one dimension": rotary(random(2, 3, 12), 4, num_heads=3),
    "caches of each position": rotary(random(2, 3, 12), 4, num_heads=3, positions=False, interleaved=1),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_heads_must_divide_the_features() -> None:
    case = rotary(random(2, 3, 12), 4, num_heads=5)
    case.expected = [case.inputs[0]]
    with raises(NoImplementationError, "RotaryEmbedding", "12 features", "5 heads"):
        lowered(case)
