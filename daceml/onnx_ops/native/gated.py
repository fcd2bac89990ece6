"""Gated and causal parts of language models."""

from __future__ import annotations

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import sigmoid
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar


@implements("SwiGLU")
def swiglu(A: Tensor, B: Tensor, Y: Output, *, alpha: float = 1.0) -> None:
    Y[:] = A * sigmoid(A * alpha) * B


@implements("CausalConvWithState")
def causal_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    past_state: Tensor | None,
    output: Output,
    present_state: Output | None,
    *,
    activation: str = "none",
) -> None:
    """Each channel with its own kernel, over what came before: the state, or zeros."""
    if activation not in ("none", "silu", "swish"):
        raise Refused(f"there is no activation {activation!r}")
    taps = weight.shape[2]
    if not isinstance(taps, int):
        raise Refused("the size of the kernel is symbolic")
    shape = (*input.shape[:2], input.shape[2] + taps - 1)
    array = output.trace.intermediate("padded", shape, input.dtype)
    x = Output(shape, input.dtype, array.name, output.trace)
    if taps > 1:
        x[:, :, : taps - 1] = 0 if past_state is None else past_state
    x[:, :, taps - 1 :] = input

    def element(n: Index, c: Index, place: Index) -> Scalar:
        total = sum_over((taps,), lambda k: x[(n, c, place + k)] * weight[(c, 0, k)])
        total = total if bias is None else total + bias[(c,)]
        return total if activation == "none" else total * sigmoid(total)

    output[:] = compute(output.shape, element)
    if present_state is not None and taps > 1:
        present_state[:] = x[:, :, input.shape[2] :]
