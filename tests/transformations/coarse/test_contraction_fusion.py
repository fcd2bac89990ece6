"""Transpositions around products become strides of the products, with eager's numbers and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import daceml
from daceml.transformations.coarse.contraction_fusion import NAME
from tests.support.golden import golden
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons

Function = Callable[..., torch.Tensor]


def turned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.transpose(-2, -1)


def both_turned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.mT @ b.mT


def turned_behind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b.mT).mT.tanh()


def heads(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a, b = a.transpose(1, 2), b.transpose(1, 2)
    return ((a @ b.mT) @ b).transpose(1, 2)


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (turned, ((3, 4), (5, 4)), {"Gemm": 1}),
        (both_turned, ((4, 3), (5, 4)), {"Gemm": 1}),
        (turned_behind, ((3, 4), (5, 4)), {"Gemm": 1, "Tanh": 1}),
        (turned, ((2, 3, 5, 4), (2, 3, 7, 4)), {"Einsum": 1}),
        (both_turned, ((6, 4, 3), (6, 5, 4)), {"Einsum": 1}),
        (turned_behind, ((6, 3, 4), (6, 5, 4)), {"Einsum": 1, "Tanh": 1}),
        (turned, ((6, 3, 4), (5, 4)), {"Einsum": 1}),
        (heads, ((1, 5, 3, 4), (1, 7, 3, 4)), {"Einsum": 2, "Transpose": 1}),
    ],
)
def test_transpositions_go_and_numbers_stay(
    function: Function, shapes: tuple[tuple[int, ...], ...], expected: dict[str, int]
):
    given = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    found = operators(lifted(Of(function), *given))
    assert found == expected
    equals_eager(Of(function), *given, rtol=1e-12)


def test_a_product_and_its_gradients_are_one_call_each():
    module = daceml.compile(Of(turned))
    a, b = torch.randn(2, 3, 5, 4, requires_grad=True), torch.randn(2, 3, 7, 4, requires_grad=True)
    module(a, b).sum().backward()
    variant, _ = module.session.variant((a, b), {})
    assert variant.backward is not None
    assert [s.label for s in variant.program.manifest.steps] == ["Einsum bmm_out"]
    calls = [s.label for s in variant.backward.program.manifest.steps if s.kind != "kernel"]
    assert calls == ["EinsumGrad bmm_pair_out"]


def test_refusals():
    def shared(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        order = b.transpose(-2, -1)
        return a @ order, order

    def refused(function: Callable[..., object], *shapes: tuple[int, ...]) -> str:
        said = "\n".join(sorted(set(reasons(lifted(Of(function), *map(torch.randn, shapes)), NAME))))
        assert said == golden()
        return said

    assert "Transpose" in refused(shared, (3, 4), (5, 4))
    assert "order" in refused(heads, (2, 5, 3, 4), (2, 7, 3, 4))
    assert "empty" in refused(turned, (0, 4), (5, 4))
    assert "along a" in refused(turned, (1, 3, 4), (2, 5, 4))
