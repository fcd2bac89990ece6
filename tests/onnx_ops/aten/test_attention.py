"""Attention by torch's fused kernel, beside the native form."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.support.golden import golden
from tests.support.operator_programs import BOTH, chosen_of_all, joined, program, refusal, run

SHAPE = "2, 3, 5, 8"


def attention(attributes: str = "", mask: str = "") -> str:
    operands = ", ".join(f"float[{SHAPE}] {name}" for name in ("Q", "K", "V"))
    call = f"Attention <{attributes}> " if attributes else "Attention "
    extra = f", {mask} M" if mask else ""
    return f"g ({operands}{extra}) => (float[{SHAPE}] Y) {{ Y = {call}(Q, K, V{', M' if mask else ''}) }}"


def operands() -> list[torch.Tensor]:
    return [torch.randn(2, 3, 5, 8) for _ in range(3)]


OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "is_causal = 1": {"is_causal": True},
    "scale = 0.3": {"scale": 0.3},
    "scale = -0.5": {"scale": -0.5},
}


def test_both_implementations_agree_with_torch():
    """With every option, as one program."""
    inputs: list[torch.Tensor] = []
    expected: dict[str, torch.Tensor] = {}
    for attributes, options in OPTIONS.items():
        q, k, v = operands()
        inputs += [q, k, v]
        expected[attributes] = scaled_dot_product_attention(q, k, v, **options)
    text = joined(*(attention(attributes) for attributes in OPTIONS))
    assert chosen_of_all(text) == ["aten:flash"] * len(OPTIONS)
    for allowed in BOTH:
        results = program(text, allowed)(inputs)
        torch.testing.assert_close(dict(zip(expected, results, strict=True)), expected)


def test_masks_of_scores_are_taken_and_repeated_without_a_copy():
    shapes = [(2, 3, 5, 5), (2, 1, 1, 5), (1, 3, 5, 1), (2, 1, 5, 5), (3, 1, 5), (5, 5), (1, 5)]
    inputs: list[torch.Tensor] = []
    expected: dict[tuple[int, ...], torch.Tensor] = {}
    for shape in shapes:
        (q, k, v), mask = operands(), torch.randn(shape)
        inputs += [q, k, v, mask]
        expected[shape] = scaled_dot_product_attention(q, k, v, mask)
    text = joined(*(attention(mask=f"float[{', '.join(map(str, shape))}]") for shape in shapes))
    assert chosen_of_all(text) == ["aten:flash"] * len(shapes)
    results = program(text)(inputs)
    torch.testing.assert_close(dict(zip(expected, results, strict=True)), expected)


def test_grouped_heads_and_fewer_or_more_keys_than_queries():
    inputs: list[torch.Tensor] = []
    expected: dict[str, torch.Tensor] = {}
    texts: list[str] = []
    for heads, keys, attributes, mask in (
        (2, 5, "", ()),
        (1, 7, "", (2, 1, 5, 7)),
        (2, 9, "is_causal = 1", ()),
        (4, 3, "is_causal = 1", ()),
    ):
        q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, heads, keys, 8), torch.randn(2, heads, keys, 8)
        given = torch.randn(mask) if mask else None
        name = f"{heads} heads, {keys} keys, {attributes or mask}"
        expected[name] = scaled_dot_product_attention(
            q, k, v, given, is_causal=bool(attributes), enable_gqa=True
        )
        inputs += [q, k, v] if given is None else [q, k, v, given]
        of_keys = f"2, {heads}, {keys}, 8"
        extra = f", float[{', '.join(map(str, mask))}] M" if mask else ""
        texts.append(
            f"g (float[2, 4, 5, 8] Q, float[{of_keys}] K, float[{of_keys}] V{extra}) "
            "=> (float[2, 4, 5, 8] Y) "
            f"{{ Y = Attention <{attributes}> (Q, K, V{', M' if mask else ''}) }}".replace("<> ", "")
        )
    text = joined(*texts)
    assert chosen_of_all(text) == ["aten:flash"] * len(texts)
    for allowed in BOTH:
        results = program(text, allowed)(inputs)
        torch.testing.assert_close(dict(zip(expected, results, strict=True)), expected)


def test_other_masks_are_left_to_the_native_form():
    q, k, v = operands()
    mask = torch.rand(5, 5) > 0.4
    mask[:, 0] = True
    text = attention(mask="bool[5, 5]")
    reason = refusal(text, "aten:flash")
    assert reason == golden()
    assert "bool" in reason and "float32" in reason
    torch.testing.assert_close(run(text, q, k, v, mask), scaled_dot_product_attention(q, k, v, mask))
