"""Linear attention by each of its rules, against the ONNX reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises


def attention(
    rule: str,
    *,
    heads: tuple[int, int] = (2, 2),
    width: int = 3,
    depth: int = 4,
    steps: int = 5,
    past: bool = False,
    decay: int | None = None,
    beta: int | None = None,
    **attributes: Any,
) -> Case:
    q, kv = heads
    inputs = [random(2, steps, q * width), random(2, steps, kv * width, seed=1, scale=0.5)]
    inputs += [random(2, steps, kv * depth, seed=2)]
    inputs += [random(2, kv, width, depth, seed=3) if past else None]
    inputs += [None if decay is None else -np.abs(random(2, steps, decay, seed=4))]
    inputs += [None if beta is None else np.abs(random(2, steps, beta, seed=5, scale=0.3))]
    attributes = {"q_num_heads": q, "kv_num_heads": kv, "update_rule": rule, **attributes}
    return Case(op="LinearAttention", inputs=inputs, attributes=attributes, outputs=2, version=27, atol=1e-5)


CASES = {
    "linear": attention("linear"),
    "gated": attention("gated", decay=6, past=True),
    "gated by head": attention("gated", decay=2, scale=0.7),
    "delta": attention("delta", beta=2, past=True),
    "gated delta": attention("gated_delta", decay=6, beta=1),
    "shared keys": attention("gated_delta", heads=(4, 2), decay=2, beta=2, past=True),
    "one of each": attention("linear", heads=(1, 1), width=1, depth=1, steps=1),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


@pytest.mark.parametrize(
    ("attributes", "facts"),
    [
        ({"update_rule": "odd"}, ["'odd'"]),
        ({"update_rule": "gated"}, ["decay", "beta"]),
        ({"q_num_heads": 4}, ["6 and 8", "4 and 2"]),
    ],
)
def test_what_does_not_fit_is_refused(attributes: dict[str, Any], facts: list[str]) -> None:
    case = attention("linear")
    case.expected = [random(2, 5, 8), random(2, 2, 3, 4)]
    case.attributes = {**case.attributes, **attributes}
    with raises(NoImplementationError, "LinearAttention", *facts):
        lowered(case)
