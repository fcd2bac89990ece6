"""The product that durations follow is found among all products."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import EstimationError
from daceml.operations.database.records import Operand, Operation
from daceml.operations.models.dimensions import dimensions
from daceml.operations.models.principal_component import principal_component
from tests.support.golden import raises
from tests.support.synthetic_operations import product, products, seconds


def test_a_product_of_matrices_follows_all_three_sizes():
    operations = products(200)
    found = principal_component(dimensions(operations), seconds(operations, seed=1))
    assert found.exponents == {"0.0": 1, "0.1": 1, "1.1": 1}  # the size that both share counts once
    assert found.text() == "0.0 x 0.1 x 1.1"
    assert found.correlation > 0.99


def test_a_stride_divides_and_what_does_not_count_is_left_out():
    rng = np.random.default_rng(0)
    sizes, strides, unused = (rng.integers(1, 30, 300) for _ in range(3))
    operations = [
        Operation(
            operator="aten::pool",
            operands=(Operand(shape=(int(n),), dtype="float32"), Operand(shape=(int(u),), dtype="float32")),
            attributes={"stride": int(s)},
        )
        for n, s, u in zip(sizes, strides, unused, strict=True)
    ]
    found = principal_component(dimensions(operations), sizes**2 / strides)
    assert dict(found.exponents) == {"0.0": 2, "stride": -1}
    assert found.text() == "0.0^2 / stride"
    values = np.exp(found.logarithm(dimensions(operations)))
    assert np.allclose(values, sizes**2.0 / strides)


@pytest.mark.parametrize(
    ("operations", "facts"),
    [(products(5), ["5 measurements"]), ([product(2, 2, 2)] * 20, ["20 measurements", "0 numbers"])],
)
def test_too_little_is_refused(operations: list[Operation], facts: list[str]):
    with raises(EstimationError, *facts):
        principal_component(dimensions(operations), seconds(operations))
