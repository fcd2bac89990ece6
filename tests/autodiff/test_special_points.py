"""Gradients where a function has a kink, a pole or a value of its own: those of eager PyTorch."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import daceml
from tests.support.eager_twin import Function

Form = Callable[..., torch.Tensor]

NUMBERS = [-math.inf, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, math.inf]
# Whole vectors: eager's loop over the last few elements has another gradient at NaN than that over vectors
PAIRS = torch.tensor(list(itertools.product([*NUMBERS, math.nan], repeat=2)) + [(1.0, 1.0)] * 28)


def compare(function: Form, *inputs: torch.Tensor) -> None:
    def gradients(module: Form) -> list[torch.Tensor]:
        given = [x.clone().requires_grad_() for x in inputs]
        result = module(*given)
        return [result.detach(), *torch.autograd.grad(result.sum(), given)]

    ours, eager = gradients(daceml.compile(Function(function))), gradients(function)
    for one, other in zip(ours, eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


ONE: dict[str, Form] = {
    "acosh": torch.acosh,
    "logit": torch.logit,
    "x^-2": lambda x: x**-2,
    "x^-3": lambda x: x**-3,
    "x^-0.5": lambda x: x**-0.5,
    "x^-1": lambda x: x**-1,
    "x^0.5": lambda x: x**0.5,
    "x^0": lambda x: x**0,
    "xlogy(x, x)": lambda x: torch.xlogy(x, x),
    "xlogy(x, 0)": lambda x: torch.xlogy(x, 0.0),
    "hypot(x, x)": lambda x: torch.hypot(x, x),
    "untaken logarithm": lambda x: torch.where(x > 0, x.log(), torch.zeros_like(x)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name: str, dtype: torch.dtype) -> None:
    compare(ONE[name], torch.tensor(NUMBERS, dtype=dtype).repeat(16))


TWO: dict[str, Form] = {
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "hypot": torch.hypot,
    "atan2": torch.atan2,
    "power": torch.pow,
    "huber": lambda x, y: functional.huber_loss(x, y, reduction="none"),
    "huber inf": lambda x, y: functional.huber_loss(x, y, delta=math.inf),
    "huber 2": lambda x, y: functional.huber_loss(x, y, reduction="sum", delta=2.0),
    "smooth l1": lambda x, y: functional.smooth_l1_loss(x, y, reduction="none"),
    "smooth l1 2": lambda x, y: functional.smooth_l1_loss(x, y, beta=2.0),
    "l1": lambda x, y: functional.smooth_l1_loss(x, y, reduction="none", beta=0.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name: str, dtype: torch.dtype) -> None:
    first, second = PAIRS.to(dtype).unbind(1)
    compare(TWO[name], first, second)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_entropies_of_certain_events_have_finite_slopes(dtype: torch.dtype, reduction: str) -> None:
    """A saturated sigmoid is 0 or 1, where the slope of a logarithm that is bounded is no number."""
    numbers = [0.0, 1e-14, 0.25, 0.5, 1 - 1e-7, 1.0]
    p, t = torch.tensor(list(itertools.product(numbers, repeat=2)), dtype=dtype).unbind(1)
    loss = functools.partial(functional.binary_cross_entropy, reduction=reduction)
    compare(loss, p, t)
    compare(lambda x: loss(torch.sigmoid(60 * x), t, weight=t + 1), p)
    compare(lambda x: loss(x.reshape(4, 9), t.reshape(4, 9)), p)


def test_powers_with_an_exponent_of_more_dimensions() -> None:
    for x, shape in ((torch.tensor([1.0, 2.0, 3.0]), (1, 1)), (torch.tensor(2.0), (1,))):
        exponent = torch.full(shape, -2.0, dtype=torch.float64)
        compare(lambda x, exponent=exponent: x**exponent, x.double())


def test_gradients_of_nothing() -> None:
    nothing = torch.randn(3, 0)
    compare(lambda x: x.sum(-1) / ((x > 0).sum(-1) + 1), nothing)
    compare(lambda x: x.sum(-1) * (x > 0).any(-1), nothing)


def test_what_is_broadcast_gets_the_sum_of_slopes() -> None:
    """Each of the slopes at (0, 0) and (1, 0) counts: NaN and an infinity are NaN."""
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0.0, 0.5, 1.0, 2.0])
    for function in (torch.xlogy, torch.special.xlog1py, torch.hypot):
        compare(function, x, y)
        compare(function, x[0], y - 1)
        compare(function, y.reshape(2, 1, 2), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_losses_of_halves_are_computed_in_float32(dtype: torch.dtype) -> None:
    x, y = torch.linspace(-4, 4, 64, dtype=dtype), torch.linspace(4, -3, 64, dtype=dtype)
    for loss in (functional.huber_loss, functional.smooth_l1_loss):
        with torch.no_grad():
            compiled = daceml.compile(Function(loss), backward=False)
            torch.testing.assert_close(compiled(x, y), loss(x, y))
