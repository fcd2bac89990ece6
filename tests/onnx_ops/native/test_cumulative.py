"""Cumulative sums: forward and backward, with and without the element itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import golden, raises
from tests.support.operator_programs import chosen, refusal, run

X = random(3, 5, 4)


def cumulative(x: np.ndarray, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Case:
    values = np.flip(x, axis) if reverse else x
    total = np.cumsum(values.astype(np.float64) if x.dtype.kind == "f" else values, axis)
    total = total - values if exclusive else total
    expected = (np.flip(total, axis) if reverse else total).astype(x.dtype)
    attributes = {"exclusive": int(exclusive), "reverse": int(reverse)}
    return Case(
        op="CumSum", inputs=[x, np.array(axis)], constants=[1], attributes=attributes, expected=[expected]
    )


def symbolic(case: Case, size: int) -> Case:
    case.symbolic = {size: "N"}
    return case


def along_data(case: Case) -> Case:
    """The same with the axis as an operand of the call."""
    case.constants = []
    return case


CASES = {
    **{
        f"axis {axis}, exclusive {e}, reverse {r}": cumulative(X, axis, exclusive=e, reverse=r)
        for axis in (0, 1, -1)
        for e in (False, True)
        for r in (False, True)
    },
    "float64": cumulative(random(2, 7, dtype=np.float64), 1),
    "integers": cumulative(np.arange(12).reshape(3, 4), 1),
    "one element": cumulative(random(1), 0, exclusive=True),
    "axis of the call": along_data(cumulative(X, 1, exclusive=True)),
    "axis of the call, from the end": along_data(cumulative(X, -3, reverse=True)),
    "axis of the call, vector": along_data(cumulative(random(4), 0)),
    "symbolic length": symbolic(cumulative(random(2, 9), 1), 9),
    "symbolic batch": symbolic(cumulative(random(9, 2), 1, reverse=True), 9),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_long_sums_are_refused_here() -> None:
    with raises(NoImplementationError, "native:triangle", "5000"):
        lowered(cumulative(random(5000), 0))


def text(attributes: str = "", kind: str = "float") -> str:
    return (
        f"g ({kind}[N, 3] X) => ({kind}[N, 3] Y) "
        f"{{ A = Constant <value = int64 {{-1}}> () Y = CumSum {attributes} (X, A) }}"
    )


@pytest.mark.parametrize(("kind", "dtype"), [("float", torch.float32), ("int32", torch.int32)])
def test_the_vendor_scan_agrees(kind: str, dtype: torch.dtype) -> None:
    x = (torch.randn(5, 3) * 9).to(dtype)
    assert chosen(text(kind=kind)) == "aten:cumsum"
    expected = x.cumsum(-1).to(dtype)
    torch.testing.assert_close(run(text(kind=kind), x), expected)
    torch.testing.assert_close(run(text(kind=kind), x, allowed=("native",)), expected)


def test_what_torch_has_not_is_left_to_the_loops() -> None:
    assert refusal(text("<reverse = 1>"), "aten:cumsum") == golden()
