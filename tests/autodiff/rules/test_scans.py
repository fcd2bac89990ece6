"""Scans, medians and distances, whose forward passes are torch's kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import daceml
from tests.support.implementation_pairs import NATIVE, Case, agree


def numbers(
    *shape: int, zeros: int = 0, ties: bool = False, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    found = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found.view(-1)[1 : 1 + 2 * zeros : 2] = 0
    return (found.round() if ties else found).to(dtype)


def scan(op: str, data: torch.Tensor, axis: int) -> Case:
    call = {
        "CumProd": lambda data: data.cumprod(axis),
        "LogCumSumExp": lambda data: data.logcumsumexp(axis),
        "CumMax": lambda data: data.cummax(axis).values,
        "CumMin": lambda data: data.cummin(axis).values,
    }[op]
    positions = {"indices": data.long()} if op in ("CumMax", "CumMin") else {}
    return Case(
        op=op,
        domain="daceml",
        inputs={"data": data},
        outputs={"values": data, **positions},
        result="values",
        attributes={"axis": axis},
        reference=call,
        wanted=("data",),
    )


def median(data: torch.Tensor) -> Case:
    return Case(
        op="Median",
        domain="daceml",
        inputs={"data": data},
        outputs={"values": data.new_zeros(())},
        result="values",
        reference=lambda data: data.median(),
        wanted=("data",),
    )


def distances(p: float, *batch: int) -> Case:
    first, second = numbers(*batch, 5, 3), numbers(*batch, 4, 3) + 0.25
    second[..., 1, :] = first[..., 2, :]
    second[..., 3, 0] = first[..., 0, 0]
    return Case(
        op="Distances",
        domain="daceml",
        inputs={"first": first, "second": second},
        outputs={"result": first.new_zeros(*batch, 5, 4)},
        result="result",
        attributes={"p": p},
        reference=lambda first, second: torch.cdist(
            first, second, p=p, compute_mode="donot_use_mm_for_euclid_dist"
        ),
        wanted=("first", "second"),
    )


def largest_differences() -> Case:
    """Rows of halves: ties, zeros, and rows that are equal."""
    case = distances(float("inf"))
    halves = {name: (2 * x).round() / 2 for name, x in case.inputs.items() if isinstance(x, torch.Tensor)}
    return replace(case, inputs=halves)


CASES = {
    "product": scan("CumProd", numbers(3, 7), 1),
    "product, first axis": scan("CumProd", numbers(4, 2, 3), 0),
    "product with zeros": scan("CumProd", numbers(3, 7, zeros=5), 1),
    "product of one row": scan("CumProd", numbers(9, zeros=1), 0),
    "product, float32": scan("CumProd", numbers(5, 6, dtype=torch.float32), 0),
    "log of sums": scan("LogCumSumExp", numbers(3, 8) * 6, 1),
    "log of sums, first axis": scan("LogCumSumExp", numbers(5, 2, 2), 0),
    "maximum": scan("CumMax", numbers(4, 9, ties=True), 1),
    "minimum": scan("CumMin", numbers(9, 4, ties=True), 0),
    "median": median(numbers(3, 5)),
    "median of equals": median(numbers(4, 6, ties=True)),
    "median of one": median(numbers()),
    **{f"distances, p={p}": distances(p) for p in (0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))},
    "largest differences that are equal": largest_differences(),
    "distances of batches": distances(2.0, 2),
}


def test_gradients_are_those_of_torch() -> None:
    agree(CASES, backward=NATIVE)


@pytest.mark.parametrize("special", [float("nan"), float("inf")])
def test_a_median_that_is_no_number(special: float) -> None:
    data = numbers(2, 3)
    data[0, 1] = data[1, 1] = special
    agree({"median": median(data)}, backward=NATIVE)


def test_the_error_of_a_long_product_does_not_grow():
    """Of float32 within a few roundings of float64, as eager PyTorch's, however many factors there are."""
    data = 1 + numbers(8193, dtype=torch.float32) / 100
    ours, exact = data.clone().requires_grad_(), data.double().requires_grad_()
    compiled = daceml.compile(Product(), backward=True)
    compiled(ours).sum().backward()
    exact.cumprod(0).sum().backward()
    assert ours.grad is not None and exact.grad is not None
    torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=2**-23, atol=0)


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumprod(0)
