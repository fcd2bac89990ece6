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
from tests.support.computations import Cases

Form = Callable[..., torch.Tensor]

NUMBERS = [-math.inf, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, math.inf]
# Whole vectors: eager's loop over the last few elements has another gradient at NaN than that over vectors
PAIRS = torch.tensor(list(itertools.product([*NUMBERS, math.nan], repeat=2)) + [(1.0, 1.0)] * 28)


def compare(**cases: tuple[Form, tuple[torch.Tensor, ...]]) -> None:
    """Compile functions as one program, each with its own inputs: results and gradients are eager's."""
    together = Cases(cases)

    def gradients(module: Form) -> dict[str, list[torch.Tensor]]:
        given = [x.clone().requires_grad_() for x in together.inputs]
        results = module(*given)
        slopes = torch.autograd.grad([result.sum() for result in results.values()], given)
        return {name: [results[name].detach(), *own] for name, own in together.apart(slopes).items()}

    ours, eager = gradients(daceml.compile(together)), gradients(together)
    for name in cases:
        for one, other in zip(ours[name], eager[name], strict=True):
            torch.testing.assert_close(
                one,
                other,
                rtol=1e-5,
                atol=1e-6,
                equal_nan=True,
                msg=lambda text, name=name: f"{name}: {text}",
            )


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
def test_functions_of_one_number(dtype: torch.dtype) -> None:
    numbers = torch.tensor(NUMBERS, dtype=dtype).repeat(16)
    compare(**{name: (function, (numbers,)) for name, function in ONE.items()})


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
def test_functions_of_two_numbers(dtype: torch.dtype) -> None:
    pairs = PAIRS.to(dtype).unbind(1)
    compare(**{name: (function, pairs) for name, function in TWO.items()})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_entropies_of_certain_events_have_finite_slopes(dtype: torch.dtype) -> None:
    """A saturated sigmoid is 0 or 1, where the slope of a logarithm that is bounded is no number."""
    numbers = [0.0, 1e-14, 0.25, 0.5, 1 - 1e-7, 1.0]
    p, t = torch.tensor(list(itertools.product(numbers, repeat=2)), dtype=dtype).unbind(1)

    def forms(reduction: str) -> dict[str, tuple[Form, tuple[torch.Tensor, ...]]]:
        loss = functools.partial(functional.binary_cross_entropy, reduction=reduction)
        return {
            f"{reduction}": (loss, (p, t)),
            f"{reduction}, saturated": (lambda x: loss(torch.sigmoid(60 * x), t, weight=t + 1), (p,)),
            f"{reduction}, matrix": (lambda x: loss(x.reshape(4, 9), t.reshape(4, 9)), (p,)),
        }

    compare(**forms("none"), **forms("mean"), **forms("sum"))


def test_powers_with_an_exponent_of_more_dimensions() -> None:
    def power(*shape: int) -> Form:
        exponent = torch.full(shape, -2.0, dtype=torch.float64)
        return lambda x: x**exponent

    vector, number = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor(2.0).double()
    compare(vector=(power(1, 1), (vector,)), number=(power(1), (number,)))


def test_gradients_of_nothing() -> None:
    nothing = torch.randn(3, 0)
    compare(
        count=(lambda x: x.sum(-1) / ((x > 0).sum(-1) + 1), (nothing,)),
        any=(lambda x: x.sum(-1) * (x > 0).any(-1), (nothing,)),
    )


def test_what_is_broadcast_gets_the_sum_of_slopes() -> None:
    """Each of the slopes at (0, 0) and (1, 0) counts: NaN and an infinity are NaN."""
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0.0, 0.5, 1.0, 2.0])
    shapes = {"matrix": (x, y), "vector": (x[0], y - 1), "three": (y.reshape(2, 1, 2), x)}
    functions = (torch.xlogy, torch.special.xlog1py, torch.hypot)
    compare(**{f"{f.__name__} {name}": (f, given) for f in functions for name, given in shapes.items()})


def test_losses_of_halves_are_computed_in_float32() -> None:
    losses = (functional.huber_loss, functional.smooth_l1_loss)
    cases: dict[str, tuple[Form, tuple[torch.Tensor, ...]]] = {}
    for dtype in (torch.float16, torch.bfloat16):
        given = (torch.linspace(-4, 4, 64, dtype=dtype), torch.linspace(4, -3, 64, dtype=dtype))
        cases |= {f"{loss.__name__} {dtype}": (loss, given) for loss in losses}
    together = Cases(cases)
    with torch.no_grad():
        ours, eager = daceml.compile(together, backward=False)(*together.inputs), together(*together.inputs)
    for name in cases:
        torch.testing.assert_close(ours[name], eager[name], msg=lambda text, name=name: f"{name}: {text}")
