"""Dropout: the mask of the forward node decides, and torch draws it."""

from __future__ import annotations

import pytest
import torch

from daceml.autodiff.vjp import rules_of
from daceml.onnx_ops.registry import KINDS
from tests.support.golden import golden
from tests.support.implementation_pairs import NATIVE
from tests.support.node_gradients import Node, gradients, run


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kinds", [KINDS, NATIVE])
def test_gradients_are_those_of_eager_dropout_with_the_same_seed(dtype: torch.dtype, kinds: tuple[str, ...]):
    x, dy = torch.randn(5, 7).to(dtype), torch.randn(5, 7).to(dtype)
    inputs = {"data": x, "ratio": torch.tensor(0.3), "training_mode": torch.tensor(True)}
    node = Node(
        op="Dropout",
        inputs=inputs,
        outputs={"output": x, "mask": torch.empty(5, 7, dtype=torch.bool)},
        constants=("ratio", "training_mode"),
    )
    torch.manual_seed(3)
    (results,) = run(node).results
    torch.manual_seed(3)
    eager = x.clone().requires_grad_()
    y = torch.dropout(eager, 0.3, True)
    assert torch.equal(results["output"], y)
    found = gradients(
        "Dropout",
        inputs,
        results,
        {"output": dy},
        ["data"],
        constants=("ratio", "training_mode"),
        allowed=kinds,
    )
    torch.testing.assert_close(found["data"], torch.autograd.grad(y, eager, dy)[0])


def test_everything_may_be_dropped():
    x = torch.ones(3)
    node = Node(
        op="DropoutGrad",
        domain="daceml.grad",
        inputs={"doutput": x, "mask": torch.zeros(3, dtype=torch.bool), "ratio": torch.tensor(1.0)},
        outputs={"ddata": x},
        constants=("ratio",),
    )
    assert run(node).results[0]["ddata"].tolist() == [0, 0, 0]


def test_a_dropout_that_may_not_be_in_training_has_no_rule():
    (rule,) = rules_of("Dropout")
    assert rule.when is not None
    assert rule.when(ratio=None, training_mode=None) == golden()
