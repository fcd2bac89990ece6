"""Cropping and padding about the centre."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.onnx_ops.native.pad import write_boxes
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor, full
from daceml.onnx_ops.tracing.trace import Refused


@implements("CenterCropPad")
def center_crop_pad(
    input_data: Tensor, shape: Tensor, output_data: Output, *, axes: Sequence[int] | None = None
) -> None:
    keys: list[slice] = []
    before: list[int] = []
    after: list[int] = []
    for extent, wanted in zip(input_data.shape, output_data.shape, strict=True):
        if extent == wanted:
            more, start = 0, 0
        elif isinstance(extent, int) and isinstance(wanted, int):
            more, start = max(wanted - extent, 0), max(extent - wanted, 0) // 2
        else:
            raise Refused(f"a size of {extent} brought to {wanted}")
        keys.append(slice(None) if more or extent == wanted else slice(start, start + wanted))
        before.append(more // 2)
        after.append(more - more // 2)
    cropped = input_data[tuple(keys)] if keys else input_data
    border = full((), 0, input_data.dtype)
    write_boxes(output_data, cropped, before, after, lambda _axis, _low: border)
