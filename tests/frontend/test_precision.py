"""Precision: in half types operators round where torch does, bit for bit; in float64 constants are whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from tests.support.exported_models import Lambda, onnx_of, operators

OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "factor": lambda x: x * 0.3137,
    "divisor": lambda x: x / 5.6569,
    "term": lambda x: x + 0.3137,
    "silu": functional.silu,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "a chain": lambda x: (x * x + x) * 0.7 - x,
    "softmax": lambda x: functional.softmax(x / 5.6569, -1),
    "normalisation": lambda x: functional.layer_norm(x * 3 + x, (32,)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_bfloat16(name: str) -> None:
    x = (torch.randn(40, 32) * 2).bfloat16()
    eager = Lambda(OPERATORS[name]).eval()
    with torch.no_grad():
        actual, expected = daceml.compile(eager, backward=False)(x), eager(x)
    assert actual.dtype == torch.bfloat16
    # another exp or erf than torch's may round the other way where the value is halfway
    assert (actual != expected).float().mean() <= 1e-3
    torch.testing.assert_close(actual, expected, rtol=2**-7, atol=1e-6)


def test_numbers_that_the_type_holds_need_no_cast() -> None:
    x = torch.randn(3).bfloat16()
    assert operators(onnx_of(Lambda(lambda x: x * 0.125), x)) == {"Mul": 1}
    assert operators(onnx_of(Lambda(lambda x: x * 0.3), x)) == {"Mul": 1, "Cast": 2}
    assert operators(onnx_of(Lambda(lambda x: x * 0.3), x.float())) == {"Mul": 1}


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_whole_numbers_beside_half_tensors_are_not_rounded(kind: torch.dtype):
    class Scaled(nn.Module):
        def forward(self, x):
            return x / 100000, x * 100000, x * 2049, x / 1000000

    eager = Scaled()
    x = torch.tensor([1.0, 0.1, 3.0, 60000.0, -7.0]).to(kind)
    for ours, theirs in zip(daceml.compile(eager, backward=False)(x), eager(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("size", [2, 5, 16, 70])
@torch.no_grad()
def test_halves_are_rounded_after_every_operator_at_every_position(size: int):
    class Chain(nn.Module):
        def forward(self, x):
            return (x + 2048) - 2048, (x * 1000) / 1000

    x = torch.linspace(0.5, 70, size).half()
    for ours, theirs in zip(daceml.compile(Chain(), backward=False)(x), Chain()(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


class Constants(nn.Module):
    """Functions whose constants have more digits than an attribute of ONNX holds."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return nn.functional.selu(x), nn.functional.hardsigmoid(x), torch.sinc(x), nn.functional.celu(x, 0.7)


def test_constants_of_functions_have_all_digits_in_float64():
    values = [-3.0, 3.0, -1.3, 0.0, 2.7, 0.4, -5.0, 6.0, 200.0, float("nan"), float("-inf"), float("inf")]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    compiled = daceml.compile(Constants())
    # of eager's own gradients that of hardsigmoid has a sixth in float32, that of celu the inverse of alpha
    for bounds, ours, theirs in zip((1e-15, 1e-8, 1e-13, 1e-7), compiled(x), Constants()(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-15, equal_nan=True)
        found, wanted = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (ours, theirs))
        torch.testing.assert_close(found[:-3], wanted[:-3], rtol=0, atol=bounds)


def test_parameters_of_functions_have_all_digits_in_float64():
    third = 1 / 3

    def calls(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        square = x.reshape(2, 2)
        return (
            functional.leaky_relu(x, third),
            functional.elu(x, third),
            torch.addmm(square, square, square, beta=third, alpha=third),
            torch.addmm(torch.full_like(square, torch.nan), square, square, beta=0, alpha=third),
            functional.scaled_dot_product_attention(square[None], square[None], square[None], scale=third),
            x + torch.linspace(0, third, 4, dtype=x.dtype),
        )

    x = torch.tensor([-3.0, -0.2, 0.0, 1.7], dtype=torch.float64, requires_grad=True)
    compiled = daceml.compile(Lambda(calls))
    for ours, theirs in zip(compiled(x), calls(x), strict=True):
        # a few roundings of numbers near 1
        torch.testing.assert_close(ours, theirs, rtol=0, atol=4e-15)
        found, wanted = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (ours, theirs))
        torch.testing.assert_close(found, wanted, rtol=0, atol=4e-15)


def test_variances_of_halves_do_not_overflow():
    def spreads(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x.std(), x.std(1), x.std(0, keepdim=True), *torch.std_mean(x, 1), *torch.var_mean(x / 8, 1),
                (x / 8).var(1), (x / 8).var())  # fmt: skip

    x = torch.tensor([[600.0, -600, 200, -400], [1, 2, 3, 4]], dtype=torch.float16, requires_grad=True)
    ours, theirs = daceml.compile(Lambda(spreads))(x), spreads(x)
    for got, want in zip(ours, theirs, strict=True):
        # half a unit of float16 each
        torch.testing.assert_close(got, want, rtol=2**-10, atol=0)
    wide = x.detach().float().requires_grad_()
    for got, exact in zip(ours, spreads(wide), strict=True):
        found = torch.autograd.grad(got.sum(), x, retain_graph=True)[0]
        (wanted,) = torch.autograd.grad(exact.sum(), wide, retain_graph=True)
        # eager's own gradients are rounded several times on their way
        torch.testing.assert_close(found.float(), wanted, rtol=3e-3, atol=2e-4)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_numbers_beside_halves_are_rounded_where_torch_rounds_them(kind: torch.dtype):
    third = 1 / 3

    def calls(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x % third,
            x // third,
            torch.div(x, third, rounding_mode="trunc"),
            functional.softshrink(x, 0.3),
            functional.hardshrink(x, 0.3),
            functional.threshold(x, 0.3, third),
            torch.round(x, decimals=2),
        )

    x = torch.tensor([600.0, -600, 250, third, 0.1, 0.3, 3, 11, 2 / 3, 0.5, -0.5, 50000], dtype=kind)
    # bit for bit
    for ours, theirs in zip(daceml.compile(Lambda(calls), backward=False)(x), calls(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
