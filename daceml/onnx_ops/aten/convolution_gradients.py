"""Gradients of convolutions by torch's `convolution_backward`: those that are wanted, in one call.

For large windows, daceml's own loop computes the gradient of a depthwise convolution's weight
(`toolchain/include/daceml/depthwise_gradients.h`). On one thread of an EPYC, 4 x 40 images of 40 x 40 and
windows of 7 x 7 take oneDNN 12.7 ms, with channels innermost 3.5, and the loop 2.3; windows of 3 x 3 take
both as long.
"""

from __future__ import annotations

from dataclasses import replace

import dace

from daceml.onnx_ops.aten.convolution import (
    Ints,
    small_depthwise,
    symmetric_padding,
    temporary_bytes,
    transposed_geometry,
    variety,
)
from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, FreshResult
from daceml.sdfg.sizes import Size, product

# Elements of a window; of fewer, oneDNN is as fast
_FEWEST_TAPS = 16


def gradients_refusal(
    dY: Tensor, X: Tensor, W: Tensor, strides: Ints, pads: Ints, dilations: Ints, auto_pad: str
) -> str | None:
    """Why torch does not take the gradients of a convolution."""
    found = symmetric_padding(X, dY, W.shape[2:], strides, pads, dilations, auto_pad)
    return found if isinstance(found, str) else _operand_refusal(dY, X, W) or small_depthwise(X, W, dY)


def _operand_refusal(dY: Tensor, X: Tensor, W: Tensor) -> str | None:
    if X.rank not in (3, 4, 5):
        return f"torch convolves over one to three spatial dimensions, not {X.rank - 2}"
    return no_empty_operand(dY, X, W) or float_operands(dY, X, W)


def _depthwise_refusal(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dW: Output | None,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    auto_pad: str,
) -> str | None:
    if X.rank not in (3, 4) or W.shape[1] != 1 or W.shape[0] != X.shape[1]:
        return "it is not depthwise over one or two dimensions"
    if X.dtype != dace.float32:
        return f"the loop is for float32, not {X.dtype.to_string()}"
    taps = product(W.shape[2:])
    if not isinstance(taps, int) or taps < _FEWEST_TAPS:
        return f"its window has {taps} elements, fewer than {_FEWEST_TAPS}: oneDNN is as fast"
    if dW is None:
        return "the gradient of its weight is not wanted"
    return gradients_refusal(dY, X, W, strides, pads, dilations, auto_pad)


@implements(
    "ConvGrad", domain=GRADIENTS, kind="aten", name="depthwise", when=_depthwise_refusal, devices=("cpu",)
)
def depthwise_gradients(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dX: Output | None,
    dW: Output | None,
    dB: Output | None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
) -> AtenCall:
    """dX by torch, dW and dB by `depthwise_gradients.h`."""
    plain = convolution_gradients(
        dY, X, W, dX, dW, dB, strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad
    )
    *arguments, _, _, groups = plain.arguments  # neither transposed nor padded behind
    return replace(plain, function="depthwise_backward", arguments=(*arguments, groups))


@implements("ConvGrad", domain=GRADIENTS, kind="aten", name="convolution", when=gradients_refusal)
def convolution_gradients(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dX: Output | None,
    dW: Output | None,
    dB: Output | None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
) -> AtenCall:
    """The results' buffers are torch's own: no copies."""
    rank = X.rank - 2
    padding = symmetric_padding(X, dY, W.shape[2:], strides, pads, dilations, auto_pad)
    assert not isinstance(padding, str), "refused before"
    zeros = (0,) * rank
    products = product(dY.shape) * product(W.shape[1:])
    return _call((dX, dW, dB), (dY, X, W), strides, padding, dilations, zeros, False, group, products)


def _transposed_refusal(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    output_padding: Ints,
    auto_pad: str,
    output_shape: Ints,
) -> str | None:
    found = transposed_geometry(X, W, dY, strides, pads, dilations, output_padding, auto_pad, output_shape)
    return found if isinstance(found, str) else _operand_refusal(dY, X, W)


@implements("ConvTransposeGrad", domain=GRADIENTS, kind="aten", name="convolution", when=_transposed_refusal)
def transposed_convolution_gradients(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dX: Output | None,
    dW: Output | None,
    dB: Output | None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
) -> AtenCall:
    """The same call with `transposed`."""
    found = transposed_geometry(X, W, dY, strides, pads, dilations, output_padding, auto_pad, output_shape)
    assert not isinstance(found, str), "refused before"
    products = product(X.shape) * product(W.shape[1:])
    return _call((dX, dW, dB), (dY, X, W), strides, found[0], dilations, found[1], True, group, products)


def _call(
    results: tuple[Output | None, Output | None, Output | None],
    operands: tuple[Tensor, Tensor, Tensor],
    strides: Ints,
    padding: tuple[int, ...],
    dilations: Ints,
    output_padding: tuple[int, ...],
    transposed: bool,
    group: int,
    products: Size,
) -> AtenCall:
    rank = len(padding)
    dY, X, W = operands
    wanted = [r.name for r in results if r is not None]
    large = sum(r is not None for r in results[:2])
    return AtenCall(
        function="convolution_backward",
        arguments=(
            *(None if r is None else FreshResult(array=r.name) for r in results),
            *(view(o) for o in operands),
            rank,
            tuple(strides or (1,) * rank),
            padding,
            tuple(dilations or (1,) * rank),
            transposed,
            output_padding,
            group,
        ),
        writes=wanted[0],
        more=tuple(wanted[1:]),
        flops=2 * large * products,
        variety=("transposed",) if transposed else variety(W, group, tuple(strides or (1,) * rank)),
        temporary_bytes=temporary_bytes(X, W, dY),
    )
