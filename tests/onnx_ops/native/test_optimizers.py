"""Steps of the standard's optimisers, of several tensors at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises

DOMAIN = "ai.onnx.preview.training"


def step(op: str, parts: int, at: int, dtype: Any = np.float32, **attributes: Any) -> Case:
    """A step of tensors of two shapes; what is kept of squares is not negative."""
    shapes = ((3, 4), (5,))
    operands = [random(*shape, seed=7 * part, dtype=dtype) for part in range(parts) for shape in shapes]
    operands[-2:] = [np.abs(value) for value in operands[-2:]]
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    return Case(
        op=op,
        domain=DOMAIN,
        version=1,
        inputs=[np.array(0.1, dtype), np.array(at, np.int64), *operands],
        attributes=attributes,
        outputs=2 * (parts - 1),
        rtol=tolerance,
        atol=tolerance,
    )


# Attributes that float32 holds: the reference takes others rounded
CASES = {
    f"{op}, step {at}, {np.dtype(dtype).name}": step(op, parts, at, dtype, **attributes)
    for at, dtype in ((0, np.float32), (3, np.float64))
    for op, parts, attributes in (
        ("Adagrad", 3, {"decay_factor": 0.125, "epsilon": 0.25, "norm_coefficient": 0.0625}),
        (
            "Adam",
            4,
            {
                "alpha": 0.75,
                "beta": 0.875,
                "epsilon": 0.25,
                "norm_coefficient": 0.125,
                "norm_coefficient_post": 0.25,
            },
        ),
        ("Momentum", 3, {"alpha": 0.75, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.125}),
    )
} | {
    "Nesterov": step("Momentum", 3, 2, alpha=0.9, beta=0.4, mode="nesterov", norm_coefficient=0.01),
    "Adam by default": step("Adam", 4, 1),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_operands_have_to_be_as_many_for_each_tensor() -> None:
    case = step("Adam", 4, 1)
    case.inputs = case.inputs[:-1]
    case.expected = [random(3, 4)] * 3
    with raises(NoImplementationError, "Adam", "7 operands", "not 4"):
        lowered(case)
