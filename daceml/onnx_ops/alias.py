"""Operators whose result is their operand under another shape: a view, without a copy."""

from __future__ import annotations

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor

# The functions give source and result; `daceml.onnx_ops.lowering` refuses where a view is impossible.


@implements("Reshape", kind="alias")
def reshape(
    data: Tensor, shape: Tensor | None, reshaped: Output, *, allowzero: int = 0
) -> tuple[Tensor, Output]:
    return data, reshaped


@implements("Flatten", kind="alias")
def flatten(input: Tensor, output: Output, *, axis: int = 1) -> tuple[Tensor, Output]:
    return input, output


@implements("Squeeze", kind="alias")
def squeeze(data: Tensor, axes: Tensor | None, squeezed: Output) -> tuple[Tensor, Output]:
    return data, squeezed


@implements("Unsqueeze", kind="alias")
def unsqueeze(data: Tensor, axes: Tensor | None, expanded: Output) -> tuple[Tensor, Output]:
    return data, expanded


@implements("Identity", kind="alias")
def identity(input: Tensor, output: Output) -> tuple[Tensor, Output]:
    return input, output
