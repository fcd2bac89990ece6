"""A scaled product scales itself where no loop does it for nothing, and is rounded no more than once more."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import daceml
from daceml.transformations.coarse.matmul_scaling import NAME
from tests.support.golden import golden
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons


def divided(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b / 7


def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return 0.3 * (a @ b.mT.mT)


def turned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b.mT / 3) @ b


def reshaped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b / 7).reshape(-1, 2)


@pytest.mark.parametrize(
    ("function", "others"),
    [(divided, {}), (multiplied, {}), (turned, {"MatMul": 1}), (reshaped, {"Reshape": 1})],
)
def test_products_scale_themselves(function: Callable[..., torch.Tensor], others: dict[str, int]):
    a, b = torch.randn(6, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    assert operators(lifted(Of(function), a, b)) == {"Gemm": 1, **others}
    equals_eager(Of(function), a, b, rtol=1e-13)
    if function is divided:  # nothing looks at the width of the type
        equals_eager(Of(function), a.float(), b.float(), rtol=1e-6)


def test_powers_of_two_are_exact_and_special_numbers_eagers():
    a, b = torch.randn(5, 9), torch.randn(9, 5)
    # of which no sum overflows before it is scaled
    a[0], a[1, 0], a[2, 3], a[3] = 1e37, math.inf, math.nan, 0.0
    b[:, 1] = 1e-30
    for factor in (0.25, 1 / 1024):

        def scaled(a: torch.Tensor, b: torch.Tensor, factor: float = factor) -> torch.Tensor:
            return a @ b * factor

        compiled = daceml.compile(Of(scaled), backward=False)
        with torch.no_grad():
            ours, theirs = compiled(a, b), scaled(a, b)
        assert daceml.explain(compiled, a, b).applied[NAME] == 1
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(ours.signbit() | ours.isnan(), theirs.signbit() | theirs.isnan())


def test_refusals():
    def softmax(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.softmax(a @ b / 7, -1)

    def computed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b * a.sum()

    def zero(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b * 0.0

    def tiny(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b / 2.5e38

    def large(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b * -8.0

    def shared(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = a @ b
        return y / 7, y

    def refused(function: Callable[..., object], *inputs: torch.Tensor) -> str:
        (reason,) = set(reasons(lifted(Of(function), *inputs), NAME))
        assert reason == golden()
        return reason

    a, b = torch.randn(3, 4), torch.randn(4, 4)
    assert "generated kernel" in refused(softmax, a, b)
    assert "constant" in refused(computed, a, b)
    for function, factor in ((zero, "factor 0 "), (tiny, "4e-39"), (large, "-8")):
        reason = refused(function, a, b)
        assert factor in reason and "2^-16" in reason
    assert "MatMul" in refused(shared, a, b)
    assert "batched" in refused(divided, a[None].repeat(2, 1, 1), b[None].repeat(2, 1, 1))
    assert "float16" in refused(divided, a.half(), b.half())
