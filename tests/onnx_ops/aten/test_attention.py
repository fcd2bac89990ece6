"""Attention by torch's fused kernel, beside the native form."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.support.golden import golden
from tests.support.operator_programs import chosen, refusal, run

SHAPE = "2, 3, 5, 8"


def attention(attributes: str = "", mask: str = "") -> str:
    operands = ", ".join(f"float[{SHAPE}] {name}" for name in ("Q", "K", "V"))
    call = f"Attention <{attributes}> " if attributes else "Attention "
    extra = f", {mask} M" if mask else ""
    return f"g ({operands}{extra}) => (float[{SHAPE}] Y) {{ Y = {call}(Q, K, V{', M' if mask else ''}) }}"


def operands() -> list[torch.Tensor]:
    return [torch.randn(2, 3, 5, 8) for _ in range(3)]


@pytest.mark.parametrize(
    ("attributes", "options"),
    [
        ("", {}),
        ("is_causal = 1", {"is_causal": True}),
        ("scale = 0.3", {"scale": 0.3}),
        ("scale = -0.5", {"scale": -0.5}),
    ],
)
def test_both_implementations_agree_with_torch(attributes: str, options: dict[str, float]):
    q, k, v = operands()
    expected = scaled_dot_product_attention(q, k, v, **options)
    assert chosen(attention(attributes)) == "aten:flash"
    torch.testing.assert_close(run(attention(attributes), q, k, v), expected)
    torch.testing.assert_close(run(attention(attributes), q, k, v, allowed=("native",)), expected)


@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 5), (2, 1, 1, 5), (1, 3, 5, 1), (2, 1, 5, 5), (3, 1, 5), (5, 5), (1, 5)]
)
def test_masks_of_scores_are_taken_and_repeated_without_a_copy(shape: tuple[int, ...]):
    q, k, v = operands()
    mask = torch.randn(shape)
    text = attention(mask=f"float[{', '.join(map(str, shape))}]")
    assert chosen(text) == "aten:flash"
    torch.testing.assert_close(run(text, q, k, v, mask), scaled_dot_product_attention(q, k, v, mask))


def test_other_masks_are_left_to_the_native_form():
    q, k, v = operands()
    mask = torch.rand(5, 5) > 0.4
    mask[:, 0] = True
    text = attention(mask="bool[5, 5]")
    reason = refusal(text, "aten:flash")
    assert reason == golden()
    assert "bool" in reason and "float32" in reason
    torch.testing.assert_close(run(text, q, k, v, mask), scaled_dot_product_attention(q, k, v, mask))
