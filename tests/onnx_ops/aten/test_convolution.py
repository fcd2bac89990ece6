"""Convolution through torch's stable C ABI, beside the native form of the same node."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tests.support.golden import golden
from tests.support.operator_programs import chosen, chosen_of_all, joined, program, refusal, run


def sizes(shape: tuple[int, ...] | torch.Size) -> str:
    return ", ".join(map(str, shape))


def conv(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, attributes: str, bias: bool = False) -> str:
    kind = "double" if x.dtype is torch.float64 else "float"
    extra = f", {kind}[{w.shape[0]}] B" if bias else ""
    return (
        f"g ({kind}[{sizes(x.shape)}] X, {kind}[{sizes(w.shape)}] W{extra}) => ({kind}[{sizes(y.shape)}] Y) "
        f"{{ Y = Conv <{attributes}> (X, W{', B' if bias else ''}) }}"
    )


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], str]] = [
    ((2, 3, 11), (4, 3, 3), {"padding": 1}, "pads = [1, 1]"),
    ((1, 4, 6, 10), (6, 2, 3, 2), {"groups": 2, "stride": (2, 1)}, "group = 2, strides = [2, 1]"),
    (
        (2, 3, 9, 7),
        (5, 3, 3, 3),
        {"dilation": 2, "padding": (2, 1)},
        "dilations = [2, 2], pads = [2, 1, 2, 1]",
    ),
    ((1, 6, 48, 45), (6, 1, 3, 3), {"groups": 6, "padding": 1}, "group = 6, pads = [1, 1, 1, 1]"),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 1), {}, "group = 1"),
]


def test_both_implementations_agree_with_torch():
    """Every convolution, in both types, as one program."""
    texts: list[str] = []
    inputs: list[torch.Tensor] = []
    expected: dict[str, torch.Tensor] = {}
    for dtype in (torch.float32, torch.float64):
        for shape, weight, options, attributes in CONVOLUTIONS:
            x, w, b = (torch.randn(size, dtype=dtype) for size in (shape, weight, weight[:1]))
            of_rank = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}
            y = of_rank[len(shape)](x, w, b, **options)
            texts.append(conv(x, w, y, attributes, bias=True))
            inputs += [x, w, b]
            expected[f"{shape}, {dtype}"] = y
    text = joined(*texts)
    assert chosen_of_all(text) == ["aten:convolution"] * len(texts)
    found, native = (
        dict(zip(expected, results, strict=True))
        for results in (program(text)(inputs), program(text, ("native",))(inputs))
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(native, expected)


def test_sides_padded_differently_are_left_to_the_native_form():
    x, w = torch.randn(1, 2, 5, 6), torch.randn(3, 2, 3, 3)
    y = functional.conv2d(functional.pad(x, (0, 1, 2, 0)), w)
    text = conv(x, w, y, "pads = [2, 0, 0, 1]")
    reason = refusal(text, "aten:convolution")
    assert reason == golden()
    assert "pads" in reason and "[2, 0, 0, 1]" in reason
    torch.testing.assert_close(run(text, x, w), y)


def test_auto_pad_is_resolved_where_both_sides_are_equal():
    x, w = torch.randn(1, 2, 7, 6), torch.randn(3, 2, 3, 3)
    y = functional.conv2d(x, w, padding="same")
    text = conv(x, w, y, 'auto_pad = "SAME_UPPER"')
    assert chosen(text) == "aten:convolution"
    assert torch.equal(run(text, x, w), y)
    even = torch.randn(3, 2, 2, 2)
    y = functional.conv2d(functional.pad(x, (0, 1, 0, 1)), even)
    text = conv(x, even, y, 'auto_pad = "SAME_UPPER"')
    reason = refusal(text, "aten:convolution")
    assert reason == golden()
    assert "auto_pad=SAME_UPPER" in reason
    torch.testing.assert_close(run(text, x, even), y)


def test_a_small_depthwise_convolution_is_a_loop_of_our_own():
    x, w = torch.randn(1, 6, 8, 5), torch.randn(6, 1, 3, 3)
    y = functional.conv2d(x, w, groups=6)
    text = conv(x, w, y, "group = 6")
    reason = refusal(text, "aten:convolution")
    assert reason == golden()
    assert "972" in reason
    torch.testing.assert_close(run(text, x, w), y)
