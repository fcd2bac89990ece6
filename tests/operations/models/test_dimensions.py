"""Operations as numbers, and what keeps them apart."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import EstimationError
from daceml.operations.database.records import Operand, Operation
from daceml.operations.models.dimensions import dimensions, mode
from tests.support.golden import raises


def conv(stride: int, dtype: str = "float32", layout: str = "contiguous") -> Operation:
    operands = (
        Operand(shape=(2, 3, 8, 8), dtype=dtype, layout=layout),
        Operand(shape=(4, 3, 3, 3), dtype=dtype),
    )
    return Operation(
        operator="aten::conv2d", operands=operands, attributes={"stride": (stride, 1), "overload": "default"}
    )


def test_numbers_of_attributes_stand_beside_sizes():
    found = dimensions([conv(1), conv(2)])
    assert found.names[-2:] == ("stride.0", "stride.1")
    assert found.values[:, -2].tolist() == [1, 2]
    assert found.sizes.tolist() == [True] * 8 + [False] * 2
    assert found.varying().tolist() == [False] * 8 + [True, False]


@pytest.mark.parametrize("other", [conv(1, "float16"), conv(1, layout="channels_last")])
def test_types_and_layouts_are_modes(other: Operation):
    assert mode(conv(1)) == mode(conv(2)) != mode(other)
    with raises(EstimationError, 2, "types", "layouts", "daceml.operations.models.dimensions.mode"):
        dimensions([conv(1), other])


def test_words_and_truths_are_modes_and_numbers_are_not():
    def gelu(**attributes: bool | str | float) -> Operation:
        operands = (Operand(shape=(4,), dtype="float32"),)
        return Operation(operator="aten::gelu", operands=operands, attributes=attributes)

    assert mode(gelu(approximate="none")) != mode(gelu(approximate="tanh"))
    assert mode(gelu(training=True)) != mode(gelu(training=False))
    assert mode(gelu(p=0.5)) == mode(gelu(p=0.1))
    assert np.array_equal(dimensions([gelu(p=0.5)]).values, [[4, 0.5]])
