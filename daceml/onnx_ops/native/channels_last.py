"""Convolution with the channels innermost: the loops of ONNX's, other indices."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.onnx_ops.domain.channels_last import DOMAIN, TO_CHANNELS_FIRST
from daceml.onnx_ops.native.convolution import convolution
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor


@implements("ChannelsLastConv", domain=DOMAIN, name="direct")
def channels_last_convolution(
    X: Tensor,
    W: Tensor,
    B: Tensor | None,
    Y: Output,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int = 1,
) -> None:
    convolution(
        X.transpose(*TO_CHANNELS_FIRST),
        W,
        B,
        Y.permuted(*TO_CHANNELS_FIRST),
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=group,
    )
