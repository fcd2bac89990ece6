"""Bits taken for another type of the same width."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from daceml.onnx_ops.schema.element_types import ELEMENT_TYPES
from tests.onnx_ops.native.single_node import Case, Outcome, lowered
from tests.support.golden import raises

CODES = {row.numpy_type: row.onnx_code for row in ELEMENT_TYPES}


def taken(x: np.ndarray, dtype: type) -> Case:
    code = CODES[np.dtype(dtype)]
    return Case(op="BitCast", inputs=[x], attributes={"to": code}, expected=[x.view(dtype)], version=26)


FLOATS = np.array([[1.5, -0.0, np.inf], [-np.inf, 1e-45, 3e38]])
CASES = {
    "float32 to int32": taken(FLOATS.astype(np.float32), np.int32),
    "float32 to uint32": taken(FLOATS.astype(np.float32), np.uint32),
    "uint32 to float32": taken(np.array([0x7F800000, 0x80000000, 1], np.uint32), np.float32),
    "float64 to uint64": taken(FLOATS, np.uint64),
    "int64 to float64": taken(np.array([-1, 1 << 62, 3]), np.float64),
    "int8 to uint8": taken(np.array([-1, 127], np.int8), np.uint8),
    "bool to uint8": taken(np.array([True, False]), np.uint8),
    "as it is": taken(np.array(7), np.int64),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    assert outcome.actual[0] is not None
    assert outcome.expected[0] is not None
    assert outcome.actual[0].tobytes() == outcome.expected[0].tobytes()


def test_half_precision_is_refused() -> None:
    with raises(NoImplementationError, "BitCast", "float16", "int16"):
        lowered(taken(np.array([1], np.float16), np.int16))
