"""Rules and implementations that a user registers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import daceml
from daceml.autodiff import vjp as registry
from daceml.autodiff.vjp import rules_of, vjp
from daceml.onnx_ops.schema.nodes import node_class
from daceml.onnx_ops.tracing.tensor import Tensor
from tests.support.golden import raises


@pytest.fixture
def registered() -> Iterator[None]:
    """The rules of these operators are as they were, afterwards."""
    rules_of("Softmax")
    before = {key: list(rules) for key, rules in registry._rules.items()}
    yield
    registry._rules.clear()
    registry._rules.update(before)


@pytest.mark.usefixtures("registered")
def test_a_users_rule_is_compiled_and_comes_first():
    """Twice the derivative, so that one sees whose rule it is."""
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    module = nn.Sequential(nn.Softmax(-1), nn.Sigmoid())
    (expected,) = torch.autograd.grad(module(x).square().sum(), x)
    (found,) = torch.autograd.grad(daceml.compile(module)(x).square().sum(), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)

    @vjp("Sigmoid", name="DoubledSigmoidGrad")
    def sigmoid_vjp(dY: Tensor, Y: Tensor) -> Tensor:
        return 2 * dY * Y * (1 - Y)

    @vjp("Softmax", name="DoubledSoftmaxGrad")
    def softmax_vjp(doutput: Tensor, output: Tensor, *, axis: int = -1) -> Tensor:
        return 2 * output * (doutput - (doutput * output).sum(axis, keepdims=True))

    assert rules_of("Softmax")[0].node is node_class("DoubledSoftmaxGrad", domain="daceml.grad")
    (found,) = torch.autograd.grad(daceml.compile(module)(x).square().sum(), x)
    torch.testing.assert_close(found, 4 * expected, rtol=0, atol=1e-14)


def test_a_rule_with_a_parameter_that_nothing_has_is_refused():
    with raises(ValueError, "rule of Softsign", "slope"):

        @vjp("Softsign", name="WrongSoftsignGrad")
        def wrong_vjp(doutput: Tensor, slope: Tensor) -> Tensor:
            return doutput * slope
