"""Convolution over any number of dimensions, with groups, strides, dilations and asymmetric padding."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.onnx_ops.native.pad import padded
from daceml.onnx_ops.native.windows import windows_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import divide, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar


@implements("Conv", name="direct", when=lambda X: None if X.rank >= 3 else "needs [N, C, spatial...]")
def convolution(
    X: Tensor,
    W: Tensor,
    B: Tensor | None,
    Y: Output,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    windows = windows_of(
        X.shape[2:],
        kernel_shape or W.shape[2:],
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
    )
    x = padded(X, (0, 0, *windows.before), (0, 0, *windows.after), 0)
    in_group, outputs = W.shape[1], divide(W.shape[0], group)
    if outputs is None:
        raise Refused(f"{W.shape[0]} output channels are not {group} groups")

    def element(n: Index, channel_of: tuple[Index, Index], *position: Index) -> Scalar:
        g, m = channel_of
        out = g * outputs + m

        def term(c: Index, *k: Index) -> Scalar:
            return x[(n, g * in_group + c, *windows.position(position, k))] * W[(out, c, *k)]

        total = sum_over((in_group, *windows.kernel), term)
        return total if B is None else total + B[out]

    spatial = Y.shape[2:]
    if group == 1:
        Y[:] = compute(Y.shape, lambda n, m, *p: element(n, (0, m), *p))
    elif same(outputs, 1):
        Y[:] = compute(Y.shape, lambda n, g, *p: element(n, (g, 0), *p))
    else:
        # Two parameters for the output channel keep every index affine.
        shape = (Y.shape[0], group, outputs, *spatial)
        Y.split(1, (group, outputs))[:] = compute(shape, lambda n, g, m, *p: element(n, (g, m), *p))
