"""Gradients of products of matrices and of einsum, by loops and by vendor kernels."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from tests.autodiff.cases import Case, check_gradients, check_results, random
from tests.support.golden import golden

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 6, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (7, 4, 5)),
    ((2, 6, 3, 4), (1, 1, 4, 5)),
    ((1, 1), (1, 1)),
    ((3, 1), (1, 5)),
]
BROADCAST = [((2, 1, 3, 4), (6, 4, 5)), ((2, 1, 3, 4), (1, 6, 4, 5))]
EMPTY = [((3, 0), (0, 5)), ((0, 4), (4, 5)), ((0, 3, 4), (4, 5)), ((2, 3, 4), (4, 0))]


def products(shapes: list[Any], dtype: torch.dtype = torch.float64, **options: Any) -> list[Case]:
    return [
        Case(
            "MatMul",
            torch.matmul,
            {"A": random(*a, dtype=dtype, seed=1), "B": random(*b, dtype=dtype, seed=2)},
            **options,
        )
        for a, b in shapes
    ]


def test_matmul_by_loops():
    cases = products(SHAPES + BROADCAST + EMPTY) + products(SHAPES[7:9], torch.float32)
    assert set(check_gradients(cases, ("native",)).chosen) == {"native:rule"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matmul_by_vendor_kernels(dtype: torch.dtype):
    assert set(check_gradients(products(SHAPES, dtype)).chosen) == {"aten:matmul"}


def test_matmul_in_half_precision():
    shapes = [((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))]
    cases = products(shapes, torch.float16) + products(shapes, torch.bfloat16)
    check_gradients(cases)
    check_gradients(cases, ("native",))


def test_matmul_of_batches_of_one():
    """Results, by both kinds: other shapes are among the tests of the operator."""
    cases = products([((1, 3, 4), (7, 4, 5)), ((2, 6, 3, 4), (1, 1, 4, 5))])
    check_results(cases)
    check_results(cases, ("native",))


def test_batches_that_broadcast_and_empty_operands_are_left_to_loops():
    found = check_gradients(products(BROADCAST + EMPTY))
    assert "native:rule" in found.chosen
    first, last = (found.refusals[i]["aten:matmul"] for i in (0, -1))
    assert [first, last] == [golden(), golden()]
    assert "[2, 1]" in first and "[6]" in first and "empty" in last


def test_matmul_of_a_symbolic_batch():
    shapes = [((7, 3, 4), (4, 5)), ((7, 3, 4), (7, 4, 5)), ((7, 4), (4, 5))]
    cases = products(shapes, symbolic={7: "N"})
    assert set(check_gradients(cases).chosen) == {"aten:matmul"}
    assert set(check_gradients(cases, ("native",)).chosen) == {"native:rule"}


def gemm(a: torch.Tensor, b: torch.Tensor, *c: torch.Tensor, **k: Any) -> torch.Tensor:
    y = k.get("alpha", 1.0) * ((a.T if k.get("transA") else a) @ (b.T if k.get("transB") else b))
    return y + k.get("beta", 1.0) * c[0] if c else y


def gemms(dtype: torch.dtype) -> list[Case]:
    cases: list[Case] = []
    for i, shape in enumerate([None, (), (1,), (5,), (1, 5), (3, 1), (3, 5), (1, 1)]):
        attributes: dict[str, Any] = {"transA": i % 2, "transB": (i // 2) % 2}
        if i > 3:
            attributes |= {"alpha": 0.5, "beta": 1.5}
        operands = {
            "A": random(*((4, 3) if attributes["transA"] else (3, 4)), dtype=dtype, seed=i),
            "B": random(*((5, 4) if attributes["transB"] else (4, 5)), dtype=dtype, seed=i),
        }
        if shape is not None:
            operands["C"] = random(*shape, dtype=dtype, seed=3)
        cases.append(Case("Gemm", functools.partial(gemm, **attributes), operands, attributes=attributes))
    return cases


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gemm(dtype: torch.dtype):
    if dtype is torch.float64:
        assert set(check_gradients(gemms(dtype), ("native",)).chosen) == {"native:rule"}
    found = check_gradients(gemms(dtype))
    kinds = {r: chosen for results, chosen in zip(found.results, found.chosen, strict=True) for r in results}
    assert kinds == {"dA": "aten:mm", "dB": "aten:mm", "dC": "native:rule"}


def einsums(dtype: torch.dtype) -> list[Case]:
    rows = [
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("ij,jk", (3, 4), (4, 5)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
        ("bhqd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 3, 5)),
        ("...ij,jk->...ik", (2, 1, 3, 4), (4, 5)),
        ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
        ("i,j->ij", (3,), (5,)),
        ("ij,ij->", (3, 4), (3, 4)),
        ("ij,kl->i", (3, 4), (2, 5)),
        ("ii,ij->j", (3, 3), (3, 4)),
        ("abc,cd->dba", (2, 3, 4), (4, 5)),
    ]
    cases = [
        Case(
            "Einsum",
            functools.partial(torch.einsum, equation),
            {"Inputs": [random(*s, dtype=dtype, seed=n) for n, s in enumerate(shapes)]},
            "Output",
            attributes={"equation": equation},
        )
        for equation, *shapes in rows
    ]
    return cases + [
        Case(
            "Einsum",
            functools.partial(torch.einsum, equation),
            {"Inputs": [random(*s, dtype=dtype, seed=n) for n, s in enumerate(shapes)]},
            "Output",
            attributes={"equation": equation},
        )
        for equation, shapes in [
            ("ij->ji", [(3, 4)]),
            ("ii->i", [(3, 3)]),
            ("a,ab,b->", [(3,), (3, 4), (4,)]),
        ]
    ]


def test_einsum():
    cases = einsums(torch.float64)
    check_gradients(cases, ("native",))
    check_gradients(cases[:4], ("native",), wanted=["Inputs__1"])


def test_einsum_by_vendor_kernels():
    cases = einsums(torch.float32)
    found = check_gradients(cases)
    check_results(cases)
    for wanted in ("Inputs__0", "Inputs__1"):
        check_gradients(cases[:4], wanted=[wanted])
    reasons = {
        c.options["attributes"]["equation"]: r.get("aten:bmm")
        for c, r in zip(cases, found.refusals, strict=True)
    }
    assert [e for e, reason in reasons.items() if reason is None] == [
        *("ij,jk->ik", "ij,jk", "bij,bkj->bik", "...ij,jk->...ik", "i,j->ij", "ij,ij->"),
    ]
    assert reasons["bhqd,bkhd->bhqk"] == golden()
    assert "'bkhd'" in reasons["bhqd,bkhd->bhqk"]


def test_einsum_of_a_symbolic_batch():
    operands = {"Inputs": [random(7, 3, 4), random(7, 4, 5)]}
    function = functools.partial(torch.einsum, "bij,bjk->bik")
    attributes = {"equation": "bij,bjk->bik"}
    case = Case("Einsum", function, operands, "Output", attributes=attributes, symbolic={7: "N"})
    assert check_gradients([case]).chosen == ["aten:bmm"]
    assert check_gradients([case], ("native",)).chosen == ["native:rule"]
