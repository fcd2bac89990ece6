"""Special functions of each other in strips: the same numbers, bit for bit, wherever strips end."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import daceml
from daceml.transformations import standard_recipe
from tests.support.tensor_functions import Apply, Function, optimised

PLAIN = standard_recipe().without("split_chains")


def split(function: Function, *shapes: tuple[int, ...]) -> int:
    (found,) = (p for p in optimised(function, *shapes).passes if p.name == "split_chains")
    return found.applied.get("split loops", 0)


def gated(x: torch.Tensor) -> torch.Tensor:
    y = functional.gelu(x)
    return torch.tanh(y * torch.sigmoid(y)) * x + y


def chained(x: torch.Tensor) -> torch.Tensor:
    return torch.log1p(functional.softplus(torch.sigmoid(functional.gelu(x)) * 2) + x.square())


def scaled(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.tanh(functional.gelu(x * weight) + bias)


CASES: dict[str, tuple[Function, tuple[tuple[int, ...], ...], int]] = {
    "a sigmoid of a GELU": (lambda x: functional.gelu(x).sigmoid(), ((6, 640),), 1),
    "strips that end early": (lambda x: functional.gelu(x).sigmoid(), ((3, 5, 133),), 1),
    "one strip": (lambda x: x.tanh().exp(), ((7, 64),), 1),
    "three stages": (chained, ((5, 190),), 1),
    "one dimension": (lambda x: x.tanh().exp().cos(), ((1000,),), 1),
    "one tasklet of several functions": (gated, ((5, 190),), 0),
    "arrays that broadcast": (scaled, ((4, 100, 3), (100, 1), (3,)), 0),
    "rows that broadcast": (scaled, ((4, 130), (130,), (4, 1)), 1),
    "short rows": (lambda x: x.tanh().exp(), ((64, 50, 63)[::-1],), 1),
    "one function": (functional.gelu, ((6, 640),), 0),
    "a square root": (lambda x: x.exp().sqrt(), ((6, 640),), 0),
    "functions side by side": (lambda x: x.exp() + x.tanh(), ((6, 640),), 0),
    "few elements": (lambda x: x.tanh().exp(), ((63,),), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_plain_loop(name: str):
    function, shapes, loops = CASES[name]
    assert split(function, *shapes) == loops
    inputs = [torch.randn(shape) for shape in shapes]
    module = Apply(function)
    with torch.no_grad():
        found, plain = (daceml.compile(module, recipe=recipe)(*inputs) for recipe in (None, PLAIN))
        torch.testing.assert_close(found, plain, rtol=0, atol=0)
        torch.testing.assert_close(found, module(*inputs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype):
    x, module = torch.randn(3, 333).to(dtype), Apply(chained)
    with torch.no_grad():
        found, plain = (daceml.compile(module, recipe=recipe)(x) for recipe in (None, PLAIN))
    assert torch.equal(found, plain)


def test_strided_inputs_and_intermediates_in_place():
    module = Apply(lambda x, w: (chained(x @ w), x.t().exp().tanh()))
    x, w = torch.randn(200, 128)[::2, ::2], torch.randn(64, 96)
    with torch.no_grad():
        found, plain = (daceml.compile(module, recipe=recipe)(x, w) for recipe in (None, PLAIN))
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    torch.testing.assert_close(found, module(x, w), atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_plain_loops():
    gradients: list[torch.Tensor] = []
    x = torch.randn(11, 170)
    for recipe in (None, PLAIN):
        leaf = x.clone().requires_grad_()
        daceml.compile(Apply(chained), recipe=recipe)(leaf).square().sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)


def test_sizes_that_are_symbols_keep_their_loops():
    compiled = daceml.compile(Apply(chained), dynamic=True)
    for rows in (64, 130, 1):
        x = torch.randn(2, rows)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), chained(x))
