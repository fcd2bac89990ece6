"""torch's attention is its fused kernel with every kind of mask, and products where the kernel refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml

KERNEL, PRODUCTS = "AttentionSaving attention_saving", "MatMul"


class Attends(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q, k, v, mask=None):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def _hidden_row() -> torch.Tensor:
    """Its first query sees no key."""
    return torch.ones(6, 6).tril(-1).bool()


Q, K = (2, 4, 6, 8), (2, 4, 7, 8)
CASES: dict[str, tuple[dict[str, Any], list[tuple[int, ...]], torch.Tensor | None, str]] = {
    "boolean mask": ({}, [Q, K, K], torch.rand(6, 7) > 0.3, KERNEL),
    "padding": ({}, [Q, K, K], (torch.arange(7) < torch.tensor([[5], [7]])).view(2, 1, 1, 7), KERNEL),
    "a row that sees nothing": ({}, [Q, Q, Q], _hidden_row(), KERNEL),
    "grouped heads": ({"enable_gqa": True, "is_causal": True}, [Q, (2, 2, 6, 8), (2, 2, 6, 8)], None, KERNEL),
    "grouped heads, boolean mask": (
        {"enable_gqa": True, "scale": 0.3}, [Q, (2, 1, 7, 8), (2, 1, 7, 8)], torch.rand(2, 1, 6, 7) > 0.3,
        KERNEL,
    ),
    "more keys than queries": ({"is_causal": True}, [Q, K, K], None, KERNEL),
    "more queries than keys": ({"is_causal": True}, [K, Q, Q], None, KERNEL),
    "without heads": ({}, [(3, 6, 8), (3, 7, 8), (3, 7, 8)], torch.rand(3, 6, 7) > 0.3, KERNEL),
    "wide values": ({}, [Q, K, (2, 4, 7, 5)], torch.rand(6, 7) > 0.3, PRODUCTS),
    "wide values, grouped heads": (
        {"enable_gqa": True, "is_causal": True}, [Q, (2, 2, 6, 8), (2, 2, 6, 5)], None, PRODUCTS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_eagers(name: str):
    options, shapes, mask, way = CASES[name]
    module = Attends(**options)
    compiled = daceml.compile(module)
    leaves = [torch.randn(shape) for shape in shapes]
    results: list[list[torch.Tensor | None]] = []
    for function in (compiled, module):
        given = [leaf.clone().requires_grad_() for leaf in leaves]
        result = function(*given, mask)
        result.backward(torch.ones_like(result).tril())
        results.append([result, *(leaf.grad for leaf in given)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    said = daceml.explain(compiled, *(leaf.requires_grad_() for leaf in leaves), mask)
    assert any(step.label.startswith(way) for step in said.steps), [step.label for step in said.steps]
