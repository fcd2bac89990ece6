"""Functions of numbers that are huge, tiny, -0, infinite or NaN: eager's values and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from tests.support.computations import Apart
from tests.support.sampling import sampled

INF, NAN = float("inf"), float("nan")
DOUBLE = 1e-14
"""Relative: some ten units of float64, for functions that are right to a unit or four."""


def doubles(*numbers: float) -> torch.Tensor:
    """A vector of float64."""
    return torch.tensor(numbers, dtype=torch.float64)


def same(functions: Apart, *args: torch.Tensor, tolerance: float = DOUBLE, gradients: bool = True) -> None:
    """Every result, and every gradient of every result, is eager's: relative to the element, NaN with NaN.

    Each function has arguments of its own, so that one backward pass gives all gradients.
    """
    backward = gradients and any(a.is_floating_point() for a in args)
    ours = values_and_gradients(daceml.compile(functions, backward=backward), functions, args, backward)
    for name, wanted in values_and_gradients(functions, functions, args, backward).items():
        for got, expected in zip(ours[name], wanted, strict=True):
            assert (got is None) == (expected is None), f"{name}: one of the gradients is absent"
            if got is None:
                continue
            torch.testing.assert_close(
                got, expected, rtol=tolerance, atol=0, equal_nan=True,
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip


def values_and_gradients(
    module: nn.Module, functions: Apart, args: tuple[torch.Tensor, ...], gradients: bool
) -> dict[str, list[torch.Tensor | None]]:
    """Of each function: its result, and gradients of its arguments."""
    leaves = [
        [a.clone().requires_grad_(gradients and a.is_floating_point()) for a in args]
        for _ in functions.computations()
    ]
    results = module(*itertools.chain(*leaves))
    found: dict[str, list[torch.Tensor | None]] = {name: [y.detach()] for name, y in results.items()}
    flowing = [y for y in results.values() if y.requires_grad]
    if flowing:
        wanted = [leaf for leaf in itertools.chain(*leaves) if leaf.requires_grad]
        torch.autograd.backward(flowing, [torch.ones_like(y) for y in flowing], inputs=wanted)
        for name, mine in zip(results, leaves, strict=True):
            found[name] += [leaf.grad for leaf in mine]
    return found


def test_sums_of_exponentials_do_not_overflow():
    first = doubles(800, -800, 1, INF, -INF, INF, -INF, NAN, 1, 0, 3, 1e308)
    second = doubles(799, -801, 2, INF, -INF, -INF, 1, 1, NAN, 0, 3, -1e308)
    same(Apart(e=torch.logaddexp, two=torch.logaddexp2), first, second)
    # slopes of exp(-1600), whose exponent is right to a rounding of 1600
    same(Apart(e=torch.logaddexp, two=torch.logaddexp2), first[None, :3], second[:, None], tolerance=1e-12)


def test_infinities_of_float64_are_no_numbers_past_float32():
    x = doubles(1e300, -1e300, INF, -INF, NAN, 0.0)
    same(Apart(bounded=torch.nan_to_num, given=lambda x: torch.nan_to_num(x, 1 / 3, 1e300, -1e200)), x)
    same(Apart(up=torch.isposinf, down=torch.isneginf, neither=torch.isfinite), x, gradients=False)
    same(Apart(up=torch.isposinf, down=torch.isneginf), torch.tensor([1, -7]), gradients=False)


def test_functions_with_a_gap_keep_nan():
    # as long as eager's vector loop: its gradient at NaN is 0 there, and another one in what is left over
    x = doubles(NAN, 0.4, -0.4, 2.0, -2.0, INF, -INF, 1 / 3)
    third = 1 / 3
    same(
        Apart(
            soft=functional.softshrink,
            hard=functional.hardshrink,
            soft_third=lambda x: functional.softshrink(x, third),
            hard_third=lambda x: functional.hardshrink(x, third),
            threshold=lambda x: functional.threshold(x, third, -third),
        ),
        x,
    )


def test_signs_of_zero_and_steps():
    x = doubles(0.0, -0.0, 3, -3, INF, -INF, NAN, -NAN)
    same(
        Apart(
            bit=torch.signbit,
            step=lambda x: torch.heaviside(x, torch.full_like(x, 0.25)),
            narrow=lambda x: torch.signbit(x.float()),
            half=lambda x: torch.signbit(x.half()),
        ),
        x,
        gradients=False,
    )
    both = Apart(sign=lambda x, y: torch.copysign(x, y), number=lambda x, y: torch.copysign(x, -2))
    same(both, x + 1, x, gradients=False)
    same(both, x[:4] - 3, x[:4])


def test_the_error_function_has_its_tail():
    same(Apart(tail=torch.erfc), doubles(-6, -0.5, 0, 1e-20, 0.5, 3, 6, 20, 26, INF, -INF, NAN))
    # a unit or two of float32 in the value, and as much in the exponential of its derivative's square
    same(Apart(tail=torch.erfc), torch.tensor([-5, -0.5, 0, 0.5, 3, 5, 9]), tolerance=3e-6)


def test_softplus_is_straight_from_its_threshold_on():
    x = doubles(20.1, 20.0, 19.9, 25, 1000, -20, -800, 0, INF, NAN)
    same(Apart(steep=lambda x: functional.softplus(x, 2.0, 3.0)), x)


def test_softplus_is_exact_where_torch_cuts_it_off():
    x = doubles(20.1, 25, 30, 1000)
    with torch.no_grad():
        ours = daceml.compile(Apart(plain=functional.softplus))(x)
    exact = x + torch.log1p(torch.exp(-x))
    torch.testing.assert_close(ours["plain"], exact, rtol=1e-15, atol=0)


def test_positive_numbers_of_exponential_units_have_a_gradient():
    x = torch.tensor([100.0, 88, -3, 0, 1e30, INF, -200, -INF])
    units = {
        "elu": functional.elu,
        "selu": functional.selu,
        "celu": functional.celu,
        "steep": lambda x: functional.elu(x, 0.3),
    }
    # exp(x) - 1 is near -1 far below zero: its derivative has an absolute error of a unit of float32
    close = Apart(**units)
    ours, theirs = (values_and_gradients(m, close, (x,), True) for m in (daceml.compile(close), close))
    for name, (value, gradient) in theirs.items():
        torch.testing.assert_close(ours[name][0], value, rtol=3e-7, atol=0, equal_nan=True)
        torch.testing.assert_close(ours[name][1], gradient, rtol=1e-6, atol=3e-7, equal_nan=True)


def test_products_with_logarithms():
    x = doubles(0, 0, 0, 0, 0, 2, 2, 2, NAN)
    y = doubles(0, -1, NAN, INF, 2.5, 0, NAN, 2.5, 0)
    same(Apart(both=torch.xlogy, number=lambda x, y: torch.xlogy(x, 2.5)), x, y, gradients=False)
    same(Apart(both=torch.xlogy, number=lambda x, y: torch.xlogy(x, 2.5)), x[4:], y[4:].abs() + 1)


def test_norms_of_one_element_are_its_magnitude():
    """Its square may be too large, or 0."""
    second = Apart(rows=lambda x: x.norm(dim=1), first=lambda x: x.unsqueeze(0).norm(1.0, dim=0))
    third = Apart(kept=lambda x: torch.linalg.vector_norm(x, 3.0, 1, keepdim=True))
    rows = torch.tensor([[3e30], [-1e-30], [-2.0], [0.0]])
    same(second, rows, tolerance=3e-7)
    for norms in (second, third):
        same(norms, torch.cat([rows, torch.tensor([[-1e-40], [-INF], [NAN]])]), tolerance=0, gradients=False)


def test_log_odds_keep_nan():
    x = doubles(NAN, 0.25, 0.75, 0.999, 0.01, 1e-9)
    both = Apart(bounded=lambda x: torch.logit(x, 0.02), plain=torch.logit)
    # a slope is the product of two that are up to 1000
    same(both, x[1:], tolerance=1e-12)
    same(both, x, gradients=False)


def test_lengths_beside_infinity_have_a_gradient():
    other = doubles(4, -INF, 1e300, 1e-300)
    same(Apart(length=lambda x: torch.hypot(x, other)), doubles(3, 2.5, 1e300, 1e-300))


@pytest.mark.parametrize("kind", sampled([torch.int32, torch.int64, torch.uint8], torch.int64, torch.uint8))
def test_whole_numbers_stay_whole(kind: torch.dtype):
    limits = torch.iinfo(kind)
    x = torch.tensor([0, 1, 100, limits.max, limits.min, limits.max - 1], dtype=kind)
    same(
        Apart(
            threshold=lambda x: functional.threshold(x, 0.5, 9.0),
            any=lambda x: x.any(),
            all=lambda x: x.all(),
            any_of=lambda x: x.reshape(2, 3).any(0),
            all_of=lambda x: x.reshape(2, 3).all(1, keepdim=True),
            any_of_none=lambda x: x[:0].any(),
            all_of_none=lambda x: x[:0].all(),
        ),
        x,
    )


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16], ids=str)
def test_extremes_without_the_element_itself_may_be_infinite(kind: torch.dtype):
    index = torch.tensor([0, 1, 2, 0, 3])
    same(
        Apart(
            largest=lambda x, u: x.scatter_reduce(0, index, u, "amax", include_self=False),
            smallest=lambda x, u: x.scatter_reduce(0, index, u, "amin", include_self=False),
        ),
        doubles(NAN, 3, INF, -INF, NAN).to(kind),
        doubles(-INF, -INF, INF, 2, NAN).to(kind),
        gradients=False,
    )


WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


class OfWholeNumbers(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {"finite": x.isfinite(), "nan": x.isnan(), "infinite": x.isinf(), "sign": x.sign()}
        found |= {"sgn": x.sgn(), "largest": x.amax(), "smallest": x.min(), "first": x[:2].max(0)[0]}
        return found if x.dtype == torch.bool else {**found, "relu": x.relu(), "absolute": x.abs()}


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_whole_numbers_are_finite_and_have_signs(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 2, 5, -3, -128, 127]).to(dtype)
    ours, eager = daceml.compile(OfWholeNumbers(), backward=False)(x), OfWholeNumbers()(x)
    for name, value in eager.items():
        assert ours[name].dtype == value.dtype and torch.equal(ours[name], value), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_finite_numbers_are_neither_infinite_nor_nan(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -INF, INF, NAN, torch.finfo(dtype).max], dtype=dtype)
    ours, eager = daceml.compile(OfWholeNumbers(), backward=False)(x), OfWholeNumbers()(x)
    for name, value in eager.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=0, equal_nan=True, msg=name)
