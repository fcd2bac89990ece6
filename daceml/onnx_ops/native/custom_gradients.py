"""What a function with a gradient of its own gives: its result."""

from __future__ import annotations

from daceml.onnx_ops.domain.custom_gradients import DOMAIN
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor


@implements("WithGradient", domain=DOMAIN)
def with_gradient(tensors: tuple[Tensor, ...], value: Output) -> None:
    value[:] = tensors[0]
