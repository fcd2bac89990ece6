"""Reads at positions that depend on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import daceml
from daceml.errors import PositionError
from tests.onnx_ops.native.single_node import Case, Outcome, random
from tests.support.eager_twin import Function
from tests.support.golden import raises
from tests.support.operator_programs import program

X = random(4, 5, 3)

CASES = {
    "axis 0": Case(op="Gather", inputs=[X, np.array([[0, 3], [2, 1]])]),
    "axis 1, negative": Case(op="Gather", inputs=[X, np.array([-1, 0, -5, 4])], attributes={"axis": 1}),
    "rank 0": Case(op="Gather", inputs=[X, np.array(-2)], attributes={"axis": -1}),
    "constant": Case(op="Gather", inputs=[X, np.array(2)], constants=[1], attributes={"axis": 1}),
    "int32": Case(op="Gather", inputs=[X, np.array([1, -1], np.int32)]),
    "integers of one": Case(op="Gather", inputs=[np.array([7]), np.array([0, -1])]),
    "float16": Case(op="Gather", inputs=[X.astype(np.float16), np.array([2])]),
    "symbolic": Case(op="Gather", inputs=[random(9, 2), np.array([8, -9])], symbolic={9: "N"}),
    "GatherElements": Case(
        op="GatherElements",
        inputs=[X, np.array([[[1, -1, 0]], [[2, 0, 4]]])],
        attributes={"axis": 1},
        expected=[np.stack([X[0][[1, -1, 0], [0, 1, 2]], X[1][[2, 0, 4], [0, 1, 2]]])[:, None]],
    ),
    "GatherND": Case(
        op="GatherND",
        inputs=[X, np.array([[0, 1], [3, -1]])],
        expected=[X[np.array([0, 3]), np.array([1, -1])]],
    ),
    "GatherND whole": Case(op="GatherND", inputs=[X, np.array([[[0, 1, 2]], [[3, 4, 0]]])]),
    "GatherND batch": Case(
        op="GatherND", inputs=[X, np.array([[1], [0], [4], [2]])], attributes={"batch_dims": 1}
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


@pytest.mark.parametrize("bad", [4, -5, 10**9])
def test_a_position_outside_is_an_error_and_never_a_read(bad: int):
    text = "g (float[4, 3] X, int64[2] I) => (float[2, 3] Y) { Y = Gather (X, I) }"
    x = torch.randn(4, 3)
    compiled = program(text)
    assert torch.equal(compiled([x, torch.tensor([3, -1])])[0], x[[3, -1]])
    with raises(PositionError, "[-4, 4)"):
        compiled([x, torch.tensor([0, bad])])


def test_positions_that_are_computed_are_checked_too():
    text = "g (float[4, 3] X, int64[2] I) => (float[2, 3] Y) { J = Add (I, I) Y = Gather (X, J) }"
    x = torch.randn(4, 3)
    compiled = program(text)
    assert torch.equal(compiled([x, torch.tensor([1, -1])])[0], x[[2, -2]])
    with pytest.raises(PositionError):
        compiled([x, torch.tensor([0, 2])])


TABLE = torch.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda i: TABLE[i[:, 0]].sin(), id="a column"),
        pytest.param(lambda i: TABLE[i[:, 0] + 1].sin(), id="a column and more"),
        pytest.param(lambda i: TABLE.gather(0, i * 2).exp(), id="elements"),
        pytest.param(lambda i: TABLE.index_add(0, i[:, 1] * 2, i.float()).exp(), id="additions"),
        pytest.param(lambda i: TABLE.index_put((i[:, 1] * 2,), i.float().sin()).exp(), id="writes"),
    ],
)
def test_what_computes_positions_is_no_loop_with_what_uses_them(read: Callable[..., torch.Tensor]):
    i = torch.tensor([[0, 1, 0], [1, 0, 1]])
    compiled: Any = daceml.compile(Function(read), backward=False)
    torch.testing.assert_close(compiled(i), read(i))
    labels = [step.kind for step in compiled.session.latest.program.manifest.steps]
    assert "check" in labels[:-1], "they are compared with the extent in between"
    with pytest.raises(PositionError):
        compiled(torch.full_like(i, 10**9))


def test_positions_in_several_dimensions_are_checked_each():
    text = "g (float[4, 3] X, int64[2, 2] I) => (float[2] Y) { Y = GatherND (X, I) }"
    x = torch.randn(4, 3)
    compiled = program(text)
    assert torch.equal(compiled([x, torch.tensor([[3, 2], [-1, 0]])])[0], x[[3, -1], [2, 0]])
    with pytest.raises(PositionError):
        compiled([x, torch.tensor([[3, 3], [0, 0]])])
