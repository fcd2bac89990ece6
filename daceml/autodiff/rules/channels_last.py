"""Convolution with the channels innermost: the rule of ONNX's, other indices."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.autodiff.rules.convolution import conv_vjp
from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.channels_last import DOMAIN, TO_CHANNELS_FIRST
from daceml.onnx_ops.tracing.tensor import Output, Tensor


@vjp("ChannelsLastConv", domain=DOMAIN)
def channels_last_conv_vjp(
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    dX: Output | None,
    dW: Output | None,
    dB: Output | None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int = 1,
) -> None:
    conv_vjp(
        dY.transpose(*TO_CHANNELS_FIRST),
        X.transpose(*TO_CHANNELS_FIRST),
        W,
        None if dX is None else dX.permuted(*TO_CHANNELS_FIRST),
        dW,
        dB,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=group,
    )
