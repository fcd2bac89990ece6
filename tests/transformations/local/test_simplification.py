"""Simplification: each rule beside float64 over the range of its argument, and where it does not apply."""

from __future__ import annotations

import dace
import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.sdfg.scalar import apply, read
from daceml.transformations.local.simplification import simplified


class Mish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(functional.softplus(x))


def tanh_of(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(functional.softplus(x))


def compiled(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return daceml.compile(Mish())(x)


def test_float32_is_within_a_few_roundings_of_float64() -> None:
    # every 4,099th float32 from -104 to 104: below, tanh(softplus(x)) is no normal number any more
    positive = torch.arange(0, 0x42D00000, 4099, dtype=torch.int32).view(torch.float32)
    x = torch.cat([positive, -positive])
    x = x[x > -86]  # x exp(x) is a normal number
    wanted = x.double() * tanh_of(x.double())
    error = ((compiled(x).double() - wanted) / wanted.abs().clamp_min(torch.finfo(torch.float32).tiny)).abs()
    # exp (4 ulp of glibc's vectors), 4 operations of the rule and the product with x
    assert error.max() <= 8 * torch.finfo(torch.float32).eps


def test_float64_is_eager_s_value() -> None:
    x = torch.linspace(-700, 700, 100001, dtype=torch.float64)
    wanted = x * tanh_of(x)
    # eager's own formula rounds four times, ours five times
    torch.testing.assert_close(compiled(x), wanted, rtol=16 * torch.finfo(torch.float64).eps, atol=0)


def test_values_that_are_no_numbers_are_eager_s() -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 3e38, -3e38])
    assert torch.equal(compiled(x).nan_to_num(7), (x * tanh_of(x)).nan_to_num(7))


def test_the_rule_is_named_where_it_applies() -> None:
    assert "tanh_of_softplus" in str(daceml.explain(daceml.compile(Mish()), torch.randn(8)))


@pytest.mark.parametrize("other", ["another argument", "another bound", "no exponential"])
def test_what_only_looks_alike_stays(other: str) -> None:
    x, y = (read(name, dace.float32, (0,), (1,)) for name in "XY")
    inside = apply("log1p", apply("exp", apply("neg", apply("abs", y if other == "another argument" else x))))
    if other == "no exponential":
        inside = apply("log1p", x)
    bound = 1.0 if other == "another bound" else 0.0
    value = apply("tanh", apply("max", x, bound) + inside)
    assert simplified(value) == (value, ()) or simplified(value)[0] is value
