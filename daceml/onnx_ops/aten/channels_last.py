"""Convolution with the channels innermost, and its gradients, by torch's kernels for channels last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from daceml.onnx_ops.aten.convolution import convolution, convolution_refusal
from daceml.onnx_ops.aten.convolution_gradients import convolution_gradients, gradients_refusal
from daceml.onnx_ops.aten.views import GRADIENTS
from daceml.onnx_ops.domain.channels_last import DOMAIN, TO_CHANNELS_FIRST
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, TensorView
from daceml.sdfg.sizes import channels_last

Ints = tuple[int, ...]


def _first(tensor: Tensor) -> Tensor:
    """What torch is shown of an array of [N, H, W, C]: [N, C, H, W]; calls say how it lies in memory."""
    shape = [tensor.shape[d] for d in TO_CHANNELS_FIRST]
    return Tensor(shape, tensor.dtype, tensor.transpose(*TO_CHANNELS_FIRST).at, array=tensor.array)


def _innermost(call: AtenCall, operands: Sequence[int], results: Sequence[Output | None]) -> AtenCall:
    """The call with its channels innermost.

    Args:
        operands: places of arguments.
    """
    arguments = list(call.arguments)
    for place in operands:
        seen = arguments[place]
        assert isinstance(seen, TensorView)
        arguments[place] = replace(seen, strides=channels_last(seen.sizes))
    given = tuple(r.name for r in results if r is not None)
    return replace(call, arguments=tuple(arguments), channels_last=given)


def _refusal(X: Tensor, W: Tensor, Y: Output, B: Tensor | None, pads: Ints) -> str | None:
    x, y = _first(X), Y.permuted(*TO_CHANNELS_FIRST)
    return convolution_refusal(x, W, y, B, None, pads, None, "NOTSET")


@implements("ChannelsLastConv", domain=DOMAIN, kind="aten", name="convolution", when=_refusal)
def channels_last_convolution(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None = None,
    *,
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    group: int = 1,
) -> AtenCall:
    """The result's buffer is torch's own: no copy."""
    y = Y.permuted(*TO_CHANNELS_FIRST)
    call = convolution(_first(X), W, y, B, strides=strides, pads=pads, dilations=dilations, group=group)
    return _innermost(call, [0], [Y])


def _gradient_refusal(dY: Tensor, X: Tensor, W: Tensor, pads: Ints) -> str | None:
    return gradients_refusal(_first(dY), _first(X), W, None, pads, None, "NOTSET")


@implements("ChannelsLastConvGrad", domain=GRADIENTS, kind="aten", name="convolution", when=_gradient_refusal)
def channels_last_convolution_gradients(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dX: Output | None,
    dW: Output | None,
    dB: Output | None,
    *,
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    group: int = 1,
) -> AtenCall:
    """The results' buffers are torch's own; a weight's gradient comes in row-major order."""
    call = convolution_gradients(
        _first(dY), _first(X), W, dX, dW, dB, strides=strides, pads=pads, dilations=dilations, group=group
    )
    return _innermost(call, [3, 4], [dX])
