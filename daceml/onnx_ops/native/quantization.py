"""Quantization to whole numbers: per tensor, per axis or by blocks. Half-way cases go to the even number."""

from __future__ import annotations

from collections.abc import Callable

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import Position, axis_of, floor_div, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, is_float
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import INTEGERS, DType, Index, Scalar, compute_type, literal

At = Callable[[tuple[Index, ...]], Scalar]


def saturated(value: Scalar, dtype: DType) -> Scalar:
    """A rounded number as an integer type; what lies outside becomes its nearest end, NaN the lowest."""
    limits = np.iinfo(dtype.type)
    low, high = literal(int(limits.min), value.dtype), literal(int(limits.max), value.dtype)
    return where(value > low, where(value < high, value, high), low).astype(dtype)


def parameter_of(parameter: Tensor, x: Tensor, axis: int, block_size: int) -> At:
    """The scale or zero point that holds for an element of x."""
    if same(parameter.size, 1):
        whole = parameter.closed()
        return lambda _: whole.at((0,) * parameter.rank)
    along = axis_of(axis, x.rank)
    if parameter.rank == 1:
        if not same(parameter.shape[0], x.shape[along]):
            raise Refused(f"{parameter.shape[0]} scales for {x.shape[along]} elements along axis {along}")
        return lambda index: parameter[(index[along],)]
    if parameter.rank != x.rank:
        raise Refused(f"scales of rank {parameter.rank} for a tensor of rank {x.rank}")
    length, blocks = x.shape[along], parameter.shape[along]
    if not (isinstance(length, int) and isinstance(blocks, int)):
        raise Refused("blocks along a symbolic size")
    size = block_size or -(-length // blocks)
    if -(-length // size) != blocks:
        raise Refused(f"{blocks} blocks of {size} do not cover {length} elements")

    def at(index: tuple[Index, ...]) -> Scalar:
        place: list[Position] = list(index)
        place[along] = floor_div(index[along], size) if size > 1 else index[along]
        return parameter[tuple(place)]

    return at


def _whole_number(dtype: DType) -> None:
    if dtype not in INTEGERS:
        raise Refused(f"quantization to {dtype.to_string()}")


@implements("QuantizeLinear")
def quantize(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None,
    y: Output,
    *,
    axis: int = 1,
    block_size: int = 0,
    saturate: int = 1,
    output_dtype: int = 0,
    precision: int = 0,
) -> None:
    # saturate is for float8; output_dtype is the type of y
    _whole_number(y.dtype)
    wide = compute_type(x.dtype) if is_float(x) else dace.float32
    scale = parameter_of(y_scale, x, axis, block_size)
    zero = None if y_zero_point is None else parameter_of(y_zero_point, x, axis, block_size)

    def element(*index: Index) -> Scalar:
        value = x.closed().at(index)
        rounded = np.rint(value.astype(wide) / scale(index).astype(wide))
        if zero is not None:
            rounded = rounded + zero(index).astype(wide)
        return saturated(rounded, y.dtype)

    y[:] = compute(y.shape, element)


@implements("DequantizeLinear")
def dequantize(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y: Output,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> None:
    _whole_number(x.dtype)
    scale = parameter_of(x_scale, x, axis, block_size)
    zero = None if x_zero_point is None else parameter_of(x_zero_point, x, axis, block_size)

    def element(*index: Index) -> Scalar:
        value = x.closed().at(index).astype(dace.int32)
        if zero is not None:
            value = value - zero(index).astype(dace.int32)
        factor = scale(index)
        return value.astype(factor.dtype) * factor

    y[:] = compute(y.shape, element)


@implements("DynamicQuantizeLinear")
def quantize_by_range(x: Tensor, y: Output, y_scale: Output, y_zero_point: Output) -> None:
    """The range of x, with zero in it, on 0 to 255; all zeros have scale 1."""
    low, high = x.min().materialize(), x.max().materialize()

    def step() -> Scalar:
        least, most = low.at(()), high.at(())
        least, most = (
            where(least < 0, least, literal(0, least.dtype)),
            where(most > 0, most, literal(0, most.dtype)),
        )
        return where(most == least, literal(255, least.dtype), most - least) / 255.0

    y_scale[:] = compute((), step)

    def zero() -> Scalar:
        least = low.at(())
        least = where(least < 0, least, literal(0, least.dtype))
        return saturated(np.rint(-least / y_scale.at(())), y_zero_point.dtype)

    y_zero_point[:] = compute((), zero)

    def element(*index: Index) -> Scalar:
        rounded = np.rint(x.closed().at(index) / y_scale.at(()))
        return saturated(rounded + y_zero_point.at(()).astype(rounded.dtype), y.dtype)

    y[:] = compute(y.shape, element)
