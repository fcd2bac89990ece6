"""Swish, of which SiLU is one, becomes one operator, with eager's numbers."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

import daceml
from daceml.transformations.coarse.swish_lifting import NAME
from tests.support.computations import Apart
from tests.support.golden import golden
from tests.support.tensor_functions import Function
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons


def swishes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return functional.silu(x), x * torch.sigmoid(1.702 * x), torch.sigmoid(x * -0.3) * x


def test_every_form_is_found_and_has_eagers_numbers_and_gradients():
    x = torch.randn(3, 1, 7, dtype=torch.float64)
    assert operators(lifted(Of(swishes), x)) == {"Swish": 3}
    equals_eager(Of(swishes), x)


def test_edges_are_eagers():
    edges = [0.0, -0.0, 30.0, -30.0, 90.0, -90.0, 1e30, -1e30, 1e-30, math.inf, -math.inf, math.nan]
    # an ulp of each of both sides
    equals_eager(Of(swishes), torch.tensor(edges), rtol=4e-7)


def test_a_gate_is_no_swish():
    def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(y)

    network = lifted(Of(gate), torch.randn(2, 3, 1), torch.randn(1, 3, 4))
    assert operators(network) == {"Sigmoid": 1, "Mul": 1}
    equals_eager(Of(gate), torch.randn(2, 3, 1).double(), torch.randn(1, 3, 4).double())


def test_refusals():
    half = lifted(Of(lambda x: x * torch.sigmoid(x)), torch.randn(3, dtype=torch.float16))
    (reason,) = reasons(half, NAME)
    assert reason == golden()
    assert "float16" in reason
    learned = lifted(Of(lambda x, a: x * torch.sigmoid(x * a)), torch.randn(3), torch.randn(1))
    (reason,) = reasons(learned, NAME)
    assert reason == golden()
    assert "tensors_1" in reason


def _normal(x: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + epsilon)


def number(value: float, x: torch.Tensor) -> torch.Tensor:
    """Of three dimensions."""
    return torch.full((1, 1, 1), value, dtype=x.dtype)


WRITTEN: dict[str, Function] = {
    "swish": lambda x: x * torch.sigmoid(x * number(1.702, x)),
    "gelu": lambda x: x * number(0.5, x) * (1 + torch.erf(x / 2**0.5)),
    "layer norm": lambda x: _normal(x, number(1e-5, x)),
    "RMS norm": lambda x: x / torch.sqrt((x**2).mean(-1, keepdim=True) + number(1e-5, x)),
}


def test_a_constant_of_more_dimensions_makes_another_shape():
    """The result of none of these has the shape of x, so none of them is the operator."""
    module = Apart(**WRITTEN)
    inputs = [x.requires_grad_() for x in module.copies(torch.randn(3, 4, dtype=torch.float64))]
    expected, results = module(*inputs), daceml.compile(module)(*inputs)
    assert {name: y.shape for name, y in results.items()} == dict.fromkeys(WRITTEN, (1, 3, 4))
    torch.testing.assert_close(results, expected)

    def gradients(some: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        sums = [y.square().sum() for y in some.values()]
        return dict(zip(some, torch.autograd.grad(sums, inputs), strict=True))

    torch.testing.assert_close(gradients(results), gradients(expected))
