"""Which results require a gradient, and from what: as in eager PyTorch, whatever a program computes."""

from __future__ import annotations

import pytest
import torch

from tests.support.eager_twin import unlike_eager

X, Y = torch.tensor([0.2, -0.5]), torch.tensor([0.3, 0.4])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.angle(),
        lambda x: x.clone().zero_(),
        lambda x: torch.fill(x, 2.0),
        lambda x: (x * 2).floor(),
    ],
    ids=["angle", "zero_", "fill", "floor"],
)
def test_a_result_that_moves_with_nothing_has_a_gradient_of_zero(function):
    assert unlike_eager(function, X, gradients=True) == []
    # next to a result that moves
    assert unlike_eager(lambda x, y: (function(x), x * y, y * 2), X, Y, gradients=True) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.addmm(x.expand(2, 2), y[:, None], y[None], beta=0),
        lambda x, y: torch.ops.aten.leaky_relu_backward(y, x, 0.1, False),
        lambda x, y: x.clone().zero_() + y,
        lambda x, y: x.clone().copy_(y),
        lambda x, y: x.sign() * y,
        lambda x, y: x.angle() + y,
    ],
    ids=["beta=0", "a gradient's gradient", "filled", "written over", "sign", "angle"],
)
def test_an_operand_that_does_not_count_gets_zeros(function):
    assert unlike_eager(function, X, Y, gradients=True) == []


class OfTheSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, gradient


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.zeros_like(x) + y,
        lambda x, y: torch.empty_like(x).copy_(y),
        lambda x, y: y[:1].expand_as(x) * y.view_as(x),
        lambda x, y: y.type_as(x) * 2,
        lambda x, y: (x > 0).float() * y,
        lambda x, y: x.detach() * y,
        OfTheSecond.apply,
    ],
    ids=["zeros_like", "empty_like", "sizes", "type", "mask", "detached", "function"],
)
def test_an_operand_without_a_way_of_gradients_gets_none(function):
    assert unlike_eager(function, X, Y, gradients=True) == []


def test_numbers_around_a_mean_give_it_a_gradient_of_zero():
    assert unlike_eager(lambda x, y: torch.normal(x, y.abs()), X, Y, gradients=True, random=True) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.native_layer_norm(x, [2], None, None, 1e-5),
        lambda x: torch.native_batch_norm(x.reshape(2, 1), None, None, None, None, True, 0.1, 1e-5),
    ],
    ids=["layer norm", "batch norm"],
)
def test_statistics_of_a_normalization_require_none(function):
    x = torch.tensor([0.2, -0.5])
    compiled = unlike_eager(lambda x: function(x)[1:], x, gradients=True)
    assert compiled == []


def test_a_detached_result_requires_none():
    assert unlike_eager(lambda x, y: ((x * 2).detach(), y * 2, x.argmax()), X, Y, gradients=True) == []


def test_a_parameter_gets_zeros_too():
    import daceml

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return torch.fill(self.weight, 2.0) + x

    module = Flat()
    y = daceml.compile(module)(X)
    assert y.requires_grad
    y.sum().backward()
    assert module.weight.grad is not None and not module.weight.grad.any()
