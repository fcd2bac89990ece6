"""What the windows of a convolution cover, written once each: one map, and one more where zeros surround."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.onnx_ops.domain.columns import DOMAIN
from daceml.onnx_ops.native.pad import padded
from daceml.onnx_ops.native.windows import windows_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import divide
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar


@implements("Columns", domain=DOMAIN)
def columns(
    X: Tensor,
    Y: Output,
    *,
    group: int,
    extents: Sequence[int],
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> None:
    windows = windows_of(
        X.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad="NOTSET"
    )
    channels = divide(X.shape[1], group)
    if channels is None:
        raise Refused(f"{X.shape[1]} channels are not {group} groups")
    x = padded(X, (0, 0, *windows.before), (0, 0, *windows.after), 0)
    rank = len(extents)

    def element(n: Index, g: Index, c: Index, *rest: Index) -> Scalar:
        offset, position = rest[:rank], rest[rank:]
        return x[(n, g * channels + c, *windows.position(position, offset))]

    # one parameter for each dimension keeps every index affine
    target = Y.split(3, tuple(extents)).split(2, (channels, *kernel_shape))
    target[:] = compute((X.shape[0], group, channels, *kernel_shape, *extents), element)
