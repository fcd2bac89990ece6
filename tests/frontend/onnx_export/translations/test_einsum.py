"""Sums of products are products of matrices, two operands at a time, and equal to eager PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.frontend.onnx_export.translations import einsum as translation
from tests.support.exported_models import Lambda

SIZES = {"b": 2, "c": 3, "h": 4, "l": 5, "s": 6, "n": 7, "p": 8, "i": 3, "j": 4, "k": 5}
EQUATIONS = (
    "ij,jk,kl->il",
    "ij,kj->ik",
    "bclhn,bcshn,bhcls,bcshp->bclhp",  # the quadratic part of a state space layer
    "bhcsl,bclhp->bchsp",
    "bhl,bls,bsp->bhp",
    "ij,jk->",
    "ij,kl->",
    "bij,bkj->bk",
    "bhi,bhj->bihj",
    "bi,bj,bk->bijk",
    "bi,bi,bi->b",
    "ijk,kji->jik",
    "b...j,...jk,k->b...",
    "bnc,hcp,hp",
    "jbhi,kbhi->hjkb",
    "bhi,bih,b->h",
)


@pytest.fixture(autouse=True)
def _matrices_of_every_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(translation, "_FEWEST_PRODUCTS", 0)


def operands(equation: str, *, repeated: int = -1) -> list[torch.Tensor]:
    """One of each term; the first dimension of one of them is 1, and repeated."""
    shapes = [
        [SIZES[label] for label in term.replace("...", "")] for term in equation.partition("->")[0].split(",")
    ]
    if repeated >= 0:
        shapes[repeated][0] = 1
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def agree(module: nn.Module, given: list[torch.Tensor]) -> nn.Module:
    compiled = daceml.compile(module)
    results: list[list[torch.Tensor | None]] = []
    for function in (compiled, module):
        leaves = [operand.clone().requires_grad_() for operand in given]
        result = function(*leaves)
        result.backward(torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape))
        results.append([result, *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(*results)
    return compiled


@pytest.mark.parametrize("equation", EQUATIONS)
def test_numbers_and_gradients_are_eagers(equation: str):
    agree(Lambda(lambda *given: torch.einsum(equation, *given)), operands(equation))


def test_operands_of_size_1_are_repeated():
    equation = "ijk,ikl,il->ij"
    agree(Lambda(lambda *given: torch.einsum(equation, *given)), operands(equation, repeated=1))


def test_several_operands_are_products_of_matrices_in_the_cheapest_order():
    chain = Lambda(lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c))
    given = [torch.randn(shape, dtype=torch.float64) for shape in ((64, 2), (2, 64), (64, 2))]
    compiled = agree(chain, given)
    said = daceml.explain(compiled, *given)
    assert [step.kind for step in said.steps] == ["aten", "aten"]
    assert said.flops == 2 * (2 * 64 * 2) * 2, "2 x 64 x 2 comes first, not 64 x 2 x 64"


def test_mixed_labels_are_brought_into_order():
    """No view of the first operand is a matrix."""
    mixed = Lambda(lambda a, b: torch.einsum("jbik,bkj->bi", a, b))
    given = [torch.randn(3, 4, 5, 6), torch.randn(4, 6, 3)]
    said = daceml.explain(agree(mixed, given), *given)
    assert "aten" in [step.kind for step in said.steps]


def test_a_diagonal_is_one_loop():
    agree(Lambda(lambda a, b: torch.einsum("iij,jk->ik", a, b)), [torch.randn(3, 3, 4), torch.randn(4, 2)])
