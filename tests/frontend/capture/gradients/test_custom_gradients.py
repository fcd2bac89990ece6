"""torch.autograd.Function in a compiled module: its backward counts, not the derivative of its forward."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.autograd import Function

import daceml
from tests.support.golden import golden


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ScaledSwish(Function):
    """Its gradient is three times that of its forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return 3 * gradient * (s * (1 + x * (1 - s)))


class ScaledProduct(Function):
    """Two operands and a number; written with setup_context."""

    @staticmethod
    def forward(a, b, scale):
        return a @ b * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b, ctx.scale = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return gradient @ b.t() * ctx.scale, 7 * (a.t() @ gradient), None


class TwoResults(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        return first - second


class Functions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        u = StraightThrough.apply(ScaledSwish.apply(y)) * y
        return ScaledProduct.apply(u, self.linear.weight, 2.0).sin() + u


class Applied(nn.Module):
    def __init__(self, function: type[Function]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.function.apply(x)
        return result[0] + result[1] if isinstance(result, tuple) else result


def gradients(module: nn.Module, compiled: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)
    return torch.autograd.grad((compiled(x) * weights).sum(), [x, *module.parameters()])


def test_the_users_backward_is_part_of_the_backward_program(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    module = Functions().double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    with caplog.at_level(logging.WARNING, logger="daceml"):
        found = gradients(module, daceml.compile(module), x)
    assert not caplog.records, "nothing runs eagerly"
    for ours, eager in zip(found, gradients(module, module, x), strict=True):
        # a few rounding errors of float64, on numbers of about 1
        torch.testing.assert_close(ours, eager, rtol=1e-12, atol=1e-13)


def test_a_function_that_is_all_of_a_module() -> None:
    x = torch.tensor([0.5, -2.0, 0.0], requires_grad=True)
    module = Applied(StraightThrough)
    assert torch.equal(gradients(module, daceml.compile(module), x)[0], gradients(module, module, x)[0])


straight_through = StraightThrough.apply


class Held(nn.Module):
    """Holds the method by which functions are called, as most code does, here in a module and a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.swish = ScaledSwish.apply

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return straight_through(self.swish(x))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by Dynamo
def test_a_function_whose_method_forward_holds() -> None:
    x = torch.tensor([0.5, -2.0, 0.3], requires_grad=True)
    expected = gradients(Held(), Held(), x)[0]
    assert torch.equal(gradients(Held(), daceml.compile(Held()), x)[0], expected)
    assert torch.equal(gradients(Held(), torch.compile(Held(), backend="daceml"), x)[0], expected)


def test_without_gradients_the_function_is_its_forward() -> None:
    x = torch.randn(3)
    module = Applied(ScaledSwish)
    with torch.no_grad():
        torch.testing.assert_close(daceml.compile(module)(x), module(x))
    assert not daceml.compile(module)(x).requires_grad


def test_several_results_are_left_to_torch(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(3, requires_grad=True)
    module = Applied(TwoResults)
    with caplog.at_level(logging.WARNING, logger="daceml"):
        found = gradients(module, daceml.compile(module), x)
    (message,) = caplog.messages
    assert "TwoResults" in message and message == golden()
    assert torch.equal(found[0], gradients(module, module, x)[0])
