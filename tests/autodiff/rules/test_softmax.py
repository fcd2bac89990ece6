"""Softmax and LogSoftmax: gradients from the results."""

from __future__ import annotations

import pytest
import torch

from daceml.autodiff.vjp import rules_of
from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.golden import golden
from tests.support.implementation_pairs import NATIVE, Case, agree
from tests.support.node_gradients import Node, run


def softmax(op: str, *shape: int, axis: int = -1, dtype: torch.dtype = torch.float32, **more: object) -> Case:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype) * 2
    function = torch.softmax if op == "Softmax" else torch.log_softmax
    return Case(
        op=op,
        inputs={"input": x},
        outputs={"output": x},
        result="output",
        attributes={"axis": axis},
        reference=lambda input: function(input, axis),
        wanted=("input",),
        **more,
    )


CASES = {
    f"{op} {title}": case
    for op in ("Softmax", "LogSoftmax")
    for title, case in {
        "last": softmax(op, 3, 5, 7),
        "middle, odd": softmax(op, 3, 33, 5, axis=1),
        "first, float64": softmax(op, 7, 3, axis=0, dtype=torch.float64),
        "one element": softmax(op, 4, 1),
        "nothing": softmax(op, 0, 3),
        "float16": softmax(op, 3, 17, dtype=torch.float16),
        "symbolic": softmax(op, 11, 5, symbolic={11: "N"}),
    }.items()
}


@pytest.mark.parametrize("forward", [KINDS, NATIVE])
@pytest.mark.parametrize("backward", [KINDS, NATIVE])
def test_gradients_are_those_of_torch(forward: tuple[Kind, ...], backward: tuple[Kind, ...]):
    _, chosen = agree(CASES, forward=forward, backward=backward)
    if backward == KINDS:
        assert {"aten:softmax_backward", "aten:log_softmax_backward"} <= set(chosen)


def test_masked_scores_have_no_gradient():
    x = torch.tensor([[0.5, -torch.inf, 1.0], [-torch.inf, 2.0, -torch.inf]])
    y = torch.softmax(x, -1)
    dy = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    node = Node(
        op="SoftmaxGrad", domain="daceml.grad", inputs={"output": y, "doutput": dy}, outputs={"dinput": x}
    )
    expected = y * (dy - (dy * y).sum(-1, keepdim=True))
    for kinds in (KINDS, NATIVE):
        torch.testing.assert_close(run(node, allowed=kinds).results[0]["dinput"], expected)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_old_versions_take_the_dimensions_from_axis_on_as_one(op: str):
    newest, flat = rules_of(op)
    assert newest.when is not None
    assert flat.when is not None
    reasons = [newest.when(since_version=1), flat.when(since_version=13)]
    assert reasons == [golden(), golden()]
    assert all("opset 13" in reason and "`axis`" in reason for reason in reasons)
    assert newest.when(since_version=13) is None
    assert flat.when(since_version=11) is None
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    function = torch.softmax if op == "Softmax" else torch.log_softmax
    y = function(x.reshape(2, 12), -1).reshape(2, 3, 4)
    dy = torch.randn(2, 3, 4, dtype=torch.float64)
    node = Node(
        op=flat.node.op_type,
        domain="daceml.grad",
        inputs={"output": y.detach(), "doutput": dy},
        outputs={"dinput": y},
        attributes={"axis": 1},
    )
    torch.testing.assert_close(run(node).results[0]["dinput"], torch.autograd.grad(y, x, dy)[0])
