"""Convolutions, with two inputs where torch has no bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daceml.frontend.onnx_export.translations import translates
from daceml.frontend.onnx_export.translations.emit import Value, each, op, rank_of, sizes_of, typed

Sizes = int | Sequence[int]


def _pads(padding: str | Sizes, kernel: list[Any], dilation: list[int]) -> list[int]:
    """ONNX pads (all begins, then all ends) of torch's padding."""
    if padding == "valid":
        return [0] * (2 * len(kernel))
    if padding == "same":
        # torch puts the odd element at the end
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [total // 2 for total in totals] + [total - total // 2 for total in totals]
    if isinstance(padding, str):
        raise TypeError(f"padding {padding!r} is neither 'same' nor 'valid'")
    return each(padding, len(kernel)) * 2


@translates("aten.convolution.default")
def convolution(
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sizes,
    padding: str | Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Value:
    kernel = sizes_of(weight)[2:]
    spatial = len(kernel)
    attributes: dict[str, Any] = {
        "strides": each(stride, spatial),
        "dilations": each(dilation, spatial),
        "pads": _pads(padding, kernel, each(dilation, spatial)),
        "group": groups,
    }
    if transposed:
        operator, attributes["output_padding"] = op.ConvTranspose, each(output_padding, spatial)
    else:
        operator = op.Conv
    if rank_of(input) == spatial + 2:
        return operator(input, weight, bias, **attributes)
    batched = typed(op.Unsqueeze(input, [0]), input, shape=(1, *sizes_of(input)))
    return op.Squeeze(typed(operator(batched, weight, bias, **attributes), dtype=input.dtype), [0])


@translates(
    "aten.conv1d.default",
    "aten.conv2d.default",
    "aten.conv3d.default",
    "aten.conv1d.padding",
    "aten.conv2d.padding",
    "aten.conv3d.padding",
)
def conv(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = 1,
    padding: str | Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Value:
    return convolution(input, weight, bias, stride, padding, dilation, False, 0, groups)


@translates("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Value:
    return convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)
