"""Bits taken for another type of the same width."""

from __future__ import annotations

import dace

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import FLOATS, HALF, Index, Scalar, bit_cast


@implements("BitCast")
def take_for(input: Tensor, output: Output, *, to: int) -> None:
    source, target = input.dtype, output.dtype
    if source.bytes != target.bytes:
        raise Refused(f"{source.to_string()} and {target.to_string()} are not of one width")
    if source != target and (HALF & {source, target} or dace.bool_ == target):
        raise Refused(f"the bits of {source.to_string()} as {target.to_string()}")

    def element(*index: Index) -> Scalar:
        value = input.closed().at(index)
        if target in FLOATS and source not in FLOATS:
            return bit_cast(value, target)
        if source in FLOATS and target not in FLOATS:
            # to the signed type first; between whole numbers of one width a conversion keeps the bits
            signed = dace.int32 if source == dace.float32 else dace.int64
            return bit_cast(value, signed).astype(target)
        return value.astype(target)

    output[:] = compute(output.shape, element)
