"""Convolutions and transposed ones: each is the gradient of the other one's input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.pad import padded
from daceml.onnx_ops.native.transposed_convolution import (
    expanded_taps,
    transposed_axis,
    write_transposed,
)
from daceml.onnx_ops.native.windows import Windows, transposed_padding, windows_of
from daceml.onnx_ops.tracing.indexing import divide, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar

Ints = Sequence[int] | None


@vjp("Conv")
def conv_vjp(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dX: Output | None,
    dW: Output | None,
    dB: Output | None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> None:
    """dX is the transposed convolution of dY; dW sums products of dY and the windows; dB sums dY."""
    windows = windows_of(
        X.shape[2:], W.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    if min((*windows.before, *windows.after)) < 0:
        raise Refused("negative pads")
    outputs = _per_group(W.shape[0], group)
    if dX is not None:
        axes = [
            transposed_axis(*sizes)
            for sizes in zip(
                *(dY.shape[2:], X.shape[2:], W.shape[2:]),
                *(windows.strides, windows.dilations, windows.before),
                strict=True,
            )
        ]
        write_transposed(dY, expanded_taps(W, axes), None, dX, axes, (group, outputs, W.shape[1]))
    if dW is not None:
        x = padded(X, (0, 0, *windows.before), (0, 0, *windows.after), 0)
        _assign_weight(dW, x, dY, windows, (group, outputs))
    if dB is not None:
        dB[:] = _by_channel(dY)


@vjp("ConvTranspose")
def conv_transpose_vjp(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dX: Output | None,
    dW: Output | None,
    dB: Output | None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> None:
    """dX is the convolution of dY; dW sums products of X and the windows of dY; dB sums dY."""
    inputs = _per_group(X.shape[1], group)
    y, windows = _result_windows(dY, X, W, strides, dilations, pads, output_padding, auto_pad, output_shape)
    if dX is not None:
        _assign_windows(dX, y, W, windows, (group, inputs))
    if dW is not None:
        _assign_weight(dW, y, X, windows, (group, inputs))
    if dB is not None:
        dB[:] = _by_channel(dY)


def _per_group(channels: Index, group: int) -> Index:
    per_group = divide(channels, group)
    if per_group is None:
        raise Refused(f"{channels} channels are not {group} groups")
    return per_group


def _by_channel(dY: Tensor) -> Tensor:
    return dY.sum([d for d in range(dY.rank) if d != 1])


def _result_windows(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    output_padding: Ints,
    auto_pad: str,
    output_shape: Ints,
) -> tuple[Tensor, Windows]:
    """The cotangent with zeros where results were cut off, and the window of it that each input went to."""
    rank = X.rank - 2
    found = transposed_padding(
        *(X.shape[2:], dY.shape[2:], W.shape[2:]),
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=output_padding,
        auto_pad=auto_pad,
        output_shape=output_shape,
    )
    if isinstance(found, str):
        raise Refused(found)
    before, after = found
    if min(before) < 0:
        raise Refused("negative pads")
    # what output_padding adds beyond the windows is no part of any
    y = padded(dY, (0, 0, *before), (0, 0, *(max(a, 0) for a in after)), 0)
    none = (0,) * rank
    return y, Windows(
        kernel=tuple(int(k) for k in W.shape[2:]),
        strides=tuple(strides or (1,) * rank),
        dilations=tuple(dilations or (1,) * rank),
        before=none,
        after=none,
    )


def _assign_windows(dX: Output, y: Tensor, W: Tensor, windows: Windows, channels: tuple[int, Index]) -> None:
    """Input channel c is the sum over its group's output channels and taps; W is [C, M / group, taps]."""
    outputs = W.shape[1]

    def element(n: Index, g: Index, c: Index, *position: Index) -> Scalar:
        channel = g * channels[1] + c

        def term(m: Index, *k: Index) -> Scalar:
            return y[(n, g * outputs + m, *windows.position(position, k))] * W[(channel, m, *k)]

        return sum_over((outputs, *windows.kernel), term)

    _by_group(dX, 1, channels, element)


def _assign_weight(dW: Output, x: Tensor, y: Tensor, windows: Windows, channels: tuple[int, Index]) -> None:
    """dW[m, c, k] sums y[n, m, o] x[n, c, o stride + k dilation]; c counts in the group of m."""
    inner = dW.shape[1]

    def element(g: Index, m: Index, c: Index, *k: Index) -> Scalar:
        def term(n: Index, *position: Index) -> Scalar:
            place = windows.position(position, k)
            return y[(n, g * channels[1] + m, *position)] * x[(n, g * inner + c, *place)]

        return sum_over((y.shape[0], *y.shape[2:]), term)

    _by_group(dW, 0, channels, element)


def _by_group(target: Output, axis: int, channels: tuple[int, Index], element: Callable[..., Scalar]) -> None:
    """Assign `element(…, group, channel, …)`; two parameters for a channel keep every index affine."""
    group, per_group = channels
    if group == 1 or same(per_group, 1):
        single = 0 if group == 1 else 1

        def plain(*index: Index) -> Scalar:
            pair = (0, index[axis]) if single == 0 else (index[axis], 0)
            return element(*index[:axis], *pair, *index[axis + 1 :])

        target[:] = compute(target.shape, plain)
        return
    split = target.split(axis, (group, per_group))
    split[:] = compute(split.shape, element)
