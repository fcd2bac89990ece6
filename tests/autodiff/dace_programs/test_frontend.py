"""Gradients inside DaCe programs, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dace
import numpy as np
import pytest
import torch

import daceml.autodiff.dace_programs  # noqa: F401  (teaches DaCe's frontend)
from daceml.errors import GradientError
from tests.support.golden import raises
from tests.support.quick_programs import quick_programs

# Of dace's own nodes.
pytestmark = pytest.mark.filterwarnings("ignore:Using sets for connectors")
N = dace.symbol("N")


@pytest.fixture(autouse=True, scope="module")
def quick_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_programs(tmp_path_factory.mktemp("programs")):
        yield


@dace.program
def of_a_sum(x: dace.float64[N]):
    x.requires_grad_()
    loss = np.sum(np.log(1 + x * x))
    loss.backward()
    return x.grad


@dace.program
def of_a_cotangent(x: dace.float64[4, 3], dy: dace.float64[4]):
    x.requires_grad_()
    y = np.add.reduce(np.exp(x), axis=1)
    torch.autograd.backward(y, dy)
    return x.grad


@dace.program
def twice(x: dace.float64[4], dy: dace.float64[4]):
    x.requires_grad_()
    y = np.sin(x)
    y.backward(dy)
    z = np.sum(x * x)
    z.backward()
    return x.grad


@dace.program
def updated_between(w: dace.float64[4], x: dace.float64[4]):
    w.requires_grad_()
    first = np.sum(np.sin(w * x))
    first.backward()
    w[:] = w - 0.1 * w.grad
    second = np.sum(np.sin(w * x))
    second.backward()
    return w.grad


@dace.program
def of_parts(x: dace.float64[6]):
    x.requires_grad_()
    inner = x[1:5]
    loss = np.sum(inner * inner)
    loss.backward()
    after = np.sum(inner)
    return x.grad, after


def half(x: torch.Tensor) -> torch.Tensor:
    (gradient,) = torch.autograd.grad(torch.log(1 + x * x).sum(), x)
    return gradient


def test_the_gradient_of_a_sum_for_any_size():
    for size in (3, 8):
        x = torch.randn(size, dtype=torch.float64)
        np.testing.assert_allclose(of_a_sum(x.clone()), half(x.requires_grad_()), rtol=1e-13)


def test_a_cotangent_is_passed_as_in_torch():
    x, dy = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    np.testing.assert_allclose(of_a_cotangent(x, dy), x.exp() * dy[:, None], rtol=1e-13)


def test_gradients_of_two_passes_add_up():
    x, dy = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    np.testing.assert_allclose(twice(x, dy), x.cos() * dy + 2 * x, rtol=1e-13)


def test_an_array_may_be_updated_between_two_passes():
    w, x = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    first = x * torch.cos(w * x)
    moved = w - 0.1 * first
    found = updated_between(w, x)
    np.testing.assert_allclose(w, moved, rtol=1e-13)
    np.testing.assert_allclose(found, first + x * torch.cos(moved * x), rtol=1e-12)


def test_a_part_of_an_array_is_a_part_of_it_before_and_after():
    x = np.arange(6.0)
    gradient, after = of_parts(x)
    np.testing.assert_array_equal(gradient, [0, 2, 4, 6, 8, 0])
    np.testing.assert_array_equal(after, 10)


def in_a_loop(x: dace.float64[4]):
    x.requires_grad_()
    for _ in range(3):
        loss = np.sum(x * x)
        loss.backward()
    return x.grad


def of_nothing(x: dace.float64[4]):
    loss = np.sum(x)
    loss.backward()
    return loss


def too_early(x: dace.float64[4]):
    x.requires_grad_()
    return x.grad


def unmarked(x: dace.float64[4]):
    return x.grad


def many_elements(x: dace.float64[4]):
    x.requires_grad_()
    y = x * x
    y.backward()
    return x.grad


def another_shape(x: dace.float64[4], dy: dace.float64[3]):
    x.requires_grad_()
    y = x * x
    y.backward(dy)
    return x.grad


def whole_numbers(k: dace.int64[4]):
    k.requires_grad_()
    return k


@pytest.mark.parametrize(
    ("program", "facts"),
    [
        (in_a_loop, ["in_a_loop", "a loop"]),
        (of_nothing, ["of_nothing", "no gradient flows from"]),
        (too_early, ["too_early", "no backward pass has reached it"]),
        (unmarked, ["unmarked", "x.requires_grad_()"]),
        (many_elements, ["many_elements", "[4]"]),
        (another_shape, ["another_shape", "[4]", "[3]"]),
        (whole_numbers, ["whole_numbers", "int64"]),
    ],
)
def test_a_refusal_says_what_and_why(program: Callable[..., Any], facts: list[str]):
    # the line in this file is part of it
    with raises(GradientError, *facts, exact=False):
        dace.program(program).to_sdfg()
