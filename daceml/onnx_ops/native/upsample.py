"""Upsample, which Resize replaced: output o lies at o / scale."""

from __future__ import annotations

from daceml.onnx_ops.native.resize import resize
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor


@implements("Upsample")
def upsample(X: Tensor, scales: Tensor, Y: Output, *, mode: str = "nearest") -> None:
    resize(
        X,
        None,
        scales,
        None,
        Y,
        coordinate_transformation_mode="asymmetric",
        mode=mode,
        nearest_mode="floor",
    )
