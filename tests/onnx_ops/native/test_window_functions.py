"""Windows of signal processing and mel filters."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered
from tests.support.golden import raises


def window(op: str, size: int, periodic: int, code: int = 1) -> Case:
    attributes = {"periodic": periodic, "output_datatype": code}
    return Case(op=op, inputs=[np.array(size)], constants=[0], attributes=attributes, version=17)


def filters(count: int, length: int, rate: int, low: float, high: float) -> Case:
    numbers = [np.array(v) for v in (count, length, rate)] + [np.float32(low), np.float32(high)]
    return Case(op="MelWeightMatrix", inputs=numbers, constants=range(5), version=17)


CASES = {
    **{
        f"{op}, {size}, periodic={p}": window(op, size, p)
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
        for size, p in ((7, 1), (8, 0))
    },
    "double": window("HannWindow", 5, 1, 11),
    "one element": window("HannWindow", 1, 1),
    "filters": filters(8, 16, 8192, 0, 4096),
    "narrow filters": filters(12, 32, 8000, 100, 3500),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_a_symmetric_window_of_one_element_is_refused() -> None:
    case = window("HannWindow", 1, 0)
    case.expected = [np.ones(1, np.float32)]
    with raises(NoImplementationError, "HannWindow", "zero"):
        lowered(case)
