"""Products and convolutions of quantized numbers: whole numbers throughout, added up in int32."""

from __future__ import annotations

from collections.abc import Sequence

import dace
import numpy as np

from daceml.onnx_ops.native.contraction import matmul, matrix_product
from daceml.onnx_ops.native.convolution import convolution
from daceml.onnx_ops.native.quantization import saturated
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar


def _less_zero(x: Tensor, zero_point: Tensor | None, vector_axis: int) -> Tensor:
    """x - zero_point in int32; a vector of zero points lies along an axis of x."""
    wide = x.astype(dace.int32)
    if zero_point is None:
        return wide
    return wide - _along(zero_point, x.rank, vector_axis).astype(dace.int32)


def _along(parameter: Tensor, rank: int, axis: int) -> Tensor:
    """A number, a vector along an axis of a tensor of this rank, or what broadcasts to it."""
    if same(parameter.size, 1):
        return parameter.reshape(())
    if parameter.rank != 1:
        return parameter
    after = rank - 1 - axis % rank
    return parameter.expand_dims(*range(1, after + 1))


@implements("MatMulInteger")
def integer_product(
    A: Tensor, B: Tensor, a_zero_point: Tensor | None, b_zero_point: Tensor | None, Y: Output
) -> None:
    rows = -2 if A.rank > 1 else -1
    if A.rank == 1 and a_zero_point is not None and not same(a_zero_point.size, 1):
        raise Refused("several zero points for one row")
    matmul(_less_zero(A, a_zero_point, rows), _less_zero(B, b_zero_point, -1), Y)


@implements("QLinearMatMul")
def quantized_product(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    y: Output,
) -> None:
    if a.rank < 2 or b.rank < 2:
        raise Refused("an operand that is not a matrix")
    total = matrix_product(
        _less_zero(a, a_zero_point, -2), _less_zero(b, b_zero_point, -1), y.trace.known_sizes
    )
    wide = dace.float32
    scale = _along(a_scale, y.rank, -2).astype(wide) * _along(b_scale, y.rank, -1).astype(wide)
    factor = scale / _along(y_scale, y.rank, -2).astype(wide)
    y[:] = _requantized(total, factor, _along(y_zero_point, y.rank, -2), y)


def _requantized(total: Tensor, factor: Tensor, zero_point: Tensor, y: Output) -> Tensor:
    value = np.rint(total.astype(dace.float32) * factor) + zero_point.astype(dace.float32)

    def element(*index: Index) -> Scalar:
        return saturated(value.at(index), y.dtype)

    return compute(y.shape, element)


@implements("ConvInteger")
def integer_convolution(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None,
    w_zero_point: Tensor | None,
    y: Output,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    # Padding is the zero point, which is 0 once it is subtracted.
    convolution(
        _less_zero(x, x_zero_point, 1),
        _less_zero(w, w_zero_point, 0),
        None,
        y,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@implements("QLinearConv")
def quantized_convolution(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    B: Tensor | None,
    y: Output,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    array = y.trace.intermediate("total", y.shape, dace.int32)
    total = Output(y.shape, dace.int32, array.name, y.trace)
    convolution(
        _less_zero(x, x_zero_point, 1),
        _less_zero(w, w_zero_point, 0),
        B,
        total,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    wide = dace.float32
    scale = x_scale.reshape(()).astype(wide) * _along(w_scale, y.rank, 1).astype(wide)
    y[:] = _requantized(total, scale / y_scale.reshape(()).astype(wide), y_zero_point.reshape(()), y)
