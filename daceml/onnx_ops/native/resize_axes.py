"""One dimension of a resize: where its outputs lie among its inputs, and what they read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import dace
import numpy as np

from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import DType, Index, Scalar, index_value, literal

Place = Callable[[Index], Scalar]
"""The place in the input of an output, between its elements."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One resized dimension.

    Attributes:
        axis: of the tensor.
        extent, outputs: sizes before and after.
        scale: as given; None where the sizes are.
        crop: the region that is resized, from 0 to 1; None for all of it.
    """

    axis: int
    extent: Index
    outputs: Index
    scale: float | None
    crop: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class ResizedAxis:
    """What the outputs of one dimension read: places [taps, outputs] and weights; None are all 1.

    Attributes:
        inside: whether an output [outputs] lies in the input; None where all do. Weights of others are 0.
    """

    axis: int
    count: int
    places: Tensor
    weights: Tensor | None
    inside: Tensor | None = None


def coordinate(row: Axis, mode: str, wide: DType) -> Place:
    """Where an output position lies in the input, computed in the order in which torch does."""
    extent, outputs = row.extent, row.outputs

    def ratio(more: int = 0) -> Scalar:
        if row.scale is not None and not more:
            return literal(1.0 / row.scale, wide)
        return index_value(extent - more, wide) / index_value(outputs - more, wide)

    def place(o: Index) -> Scalar:
        position = index_value(o, wide)
        if mode == "align_corners":
            if same(outputs, 1):
                return literal(0.0, wide)
            aligned = ratio(1) * position
            return aligned if isinstance(outputs, int) else _unless_single(outputs, aligned)
        if row.crop is not None:
            return _cropped(row, position)
        if mode == "asymmetric":
            return position * ratio()
        centre = ratio() * (position + 0.5) - 0.5
        if mode == "pytorch_half_pixel":
            if same(outputs, 1):
                return literal(0.0, wide)
            return centre if isinstance(outputs, int) else _unless_single(outputs, centre)
        if mode == "half_pixel_symmetric" and row.scale is not None:
            full = index_value(extent, wide)
            adjusted = index_value(outputs, wide) / (full * row.scale)
            return full * 0.5 * (1.0 - adjusted) + centre
        return centre

    return place


def _unless_single(outputs: Index, value: Scalar) -> Scalar:
    return where(index_value(outputs) > 1, value, literal(0.0, value.dtype))


def inside(position: Scalar, extent: Index) -> Scalar:
    """The nearest place that there is."""
    return minimum(maximum(position, 0), index_value(extent - 1))


def _cropped(row: Axis, position: Scalar) -> Scalar:
    assert row.crop is not None
    first, last = row.crop
    if not isinstance(row.extent, int) or not isinstance(row.outputs, int):
        raise Refused("tf_crop_and_resize of a symbolic size")
    reach = row.extent - 1
    outputs = row.outputs if row.scale is None else row.scale * row.extent
    if outputs == 1:
        return literal((last - first) * reach / 2 + first * reach, position.dtype)
    return position * (last - first) * reach / (outputs - 1) + first * reach


def only_inside(table: ResizedAxis, row: Axis, place: Place, dtype: DType | None) -> ResizedAxis:
    """The table without what outputs read that lie outside of the input.

    Args:
        dtype: of the weights; None for elements that are not weighted.
    """

    def lies_inside(o: Index) -> Scalar:
        x = place(o)
        return np.logical_and(x >= 0.0, x <= index_value(row.extent - 1, x.dtype))

    def weight(tap: Index, o: Index) -> Scalar:
        assert dtype is not None
        known = literal(1.0, dtype) if table.weights is None else table.weights[tap, o].astype(dtype)
        return where(lies_inside(o), known, literal(0.0, dtype))

    weights = None if dtype is None else compute((table.count, row.outputs), weight).materialize()
    return replace(table, weights=weights, inside=compute((row.outputs,), lies_inside).materialize())


def filtered(
    row: Axis, place: Place, mode: str, a: float, antialias: bool, exclude_outside: bool
) -> ResizedAxis:
    """Linear or cubic interpolation with weights that are divided by their sum.

    Args:
        a: Keys' coefficient.
        antialias: the filter is as wide as an output, where these are fewer than inputs.
        exclude_outside: what lies outside weighs nothing; else the border is repeated.
    """
    scale = row.scale
    if scale is None:
        if not isinstance(row.extent, int) or not isinstance(row.outputs, int) or not row.extent:
            raise Refused("antialias or exclude_outside of a size that is symbolic, or 0")
        scale = row.outputs / row.extent
    shrink = min(scale, 1.0) if antialias else 1.0
    reach, kernel = (1, _triangle) if mode == "linear" else (2, lambda x: keys(x, a))
    first = math.floor(-reach / shrink) + 1
    count = 2 - 2 * first

    def spot(tap: Index, o: Index) -> Scalar:
        return np.ceil(place(o)).astype(dace.int64) + (index_value(tap) + (first - 1))

    def weight(tap: Index, o: Index) -> Scalar:
        x, at = place(o), spot(tap, o)
        found = kernel(abs(x - at.astype(x.dtype)) * shrink)
        if not exclude_outside:
            return found
        there = np.logical_and(at >= 0, at <= index_value(row.extent - 1))
        return where(there, found, literal(0.0, found.dtype))

    table = tables(count, row, lambda tap, o: inside(spot(tap, o), row.extent), weight)
    assert table.weights is not None
    total = table.weights.sum(0, keepdims=True).materialize()
    return replace(table, weights=(table.weights / total).materialize())


def _triangle(distance: Scalar) -> Scalar:
    return maximum(1.0 - distance, 0.0)


def keys(distance: Scalar, a: float) -> Scalar:
    """Keys' convolution with coefficient a."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1.0
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return where(distance <= 1.0, near, where(distance < 2.0, far, literal(0.0, distance.dtype)))


def tables(
    count: int,
    row: Axis,
    position: Callable[[Index, Index], Scalar],
    weight: Callable[[Index, Index], Scalar],
) -> ResizedAxis:
    """Places and weights of all outputs, in arrays."""
    shape = (count, row.outputs)
    return ResizedAxis(
        axis=row.axis,
        count=count,
        places=compute(shape, position).materialize(),
        weights=compute(shape, weight).materialize(),
    )
