"""Regions of interest, pooled to a fixed size: bilinear samples in each bin, averaged or their largest."""

from __future__ import annotations

from typing import Literal

import dace
import numpy as np

from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.builder import reduced_parameters
from daceml.sdfg.scalar import Index, Scalar, cast, compute_type, index_value, literal, reduce_over

# Samples of a bin along a dimension that its size decides: more are a region that is no number.
_MOST = 1 << 20


@implements("RoiAlign")
def roi_align(
    X: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    Y: Output,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    since_version: int,
) -> None:
    if mode not in ("avg", "max"):
        raise Refused(f"there is no mode {mode!r}")
    # before version 16 there was no half pixel
    half = coordinate_transformation_mode == "half_pixel" and since_version >= 16
    check_positions(batch_indices, X.shape[0], lowest=0)
    dtype = compute_type(X.dtype)
    (k,) = reduced_parameters(1)

    def side(roi: Index, axis: int, bins: int) -> tuple[Scalar, Scalar, Scalar]:
        """Start of a region, size of a bin, and samples in a bin along a dimension."""
        first, last = (
            rois[(roi, corner)] * spatial_scale - (0.5 if half else 0.0) for corner in (1 - axis, 3 - axis)
        )
        length = last - first if half else maximum(last - first, 1)
        if sampling_ratio > 0:
            return first, length / bins, literal(sampling_ratio, dace.int64)
        count = np.ceil(length / bins)
        count = where(count > 0, where(count < _MOST, count, _MOST), 0.0)
        return first, length / bins, count.astype(dace.int64)

    def element(roi: Index, c: Index, *place: Index) -> Scalar:
        image = batch_indices[(roi,)].astype(dace.int64)
        starts, sizes, counts = zip(
            *(side(roi, d, b) for d, b in ((0, output_height), (1, output_width))), strict=True
        )
        sample = index_value(k)
        columns = maximum(counts[1], 1)
        steps = (sample // columns, sample % columns)
        points = [
            starts[d]
            + index_value(place[d]).astype(dtype) * sizes[d]
            + (steps[d].astype(dtype) + 0.5) * sizes[d] / counts[d].astype(dtype)
            for d in range(2)
        ]
        values = _corners(X, image, c, points)
        total = counts[0] * counts[1]
        if mode == "max":
            largest = values[0]
            for value in values[1:]:
                largest = maximum(largest, value)
            found = _over("max", k, total, largest, sampling_ratio)
            return where(total > 0, found, literal(0, dtype))
        found = _over("sum", k, total, values[0] + values[1] + values[2] + values[3], sampling_ratio)
        return found / maximum(total, 1).astype(dtype)

    Y[:] = compute(Y.shape, element)


def _over(operator: Literal["sum", "max"], k: Index, count: Scalar, body: Scalar, ratio: int) -> Scalar:
    extent = ratio * ratio if ratio > 0 else count
    return cast(reduce_over(operator, [k], [extent], body), body.dtype)


def _corners(X: Tensor, image: Scalar, c: Index, points: list[Scalar]) -> list[Scalar]:
    """The four elements around a point, each with its weight; zeros where it lies outside the image."""
    dtype = points[0].dtype
    inside: Scalar | None = None
    rows: list[list[tuple[Scalar, Scalar]]] = []
    for d, point in enumerate(points):
        extent = X.shape[2 + d]
        holds = (point >= -1.0) & (point <= index_value(extent, dtype))
        inside = holds if inside is None else inside & holds
        last = index_value(extent - 1)
        kept = where(holds, maximum(point, 0), literal(0, dtype))
        kept = minimum(kept, last.astype(dtype))
        low = kept.astype(dace.int64)
        rest = kept - low.astype(dtype)
        rows.append([(low, 1 - rest), (minimum(low + 1, last), rest)])
    assert inside is not None
    zero = literal(0, dtype)
    return [where(inside, X[(image, c, y, x)] * (wy * wx), zero) for y, wy in rows[0] for x, wx in rows[1]]
