"""Resizing: nearest, linear and cubic interpolation, one dimension's coordinates at a time.

A nearest resize by a whole factor only repeats or skips elements: its indices are affine. Otherwise each
resized dimension gets two small tables, the places that an output reads and their weights, so that the loop
over all elements computes no coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import dace
import numpy as np

from daceml.onnx_ops.functions import maximum, minimum, where
from daceml.onnx_ops.indexing import axis_of, divide, same
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.schema import exact_float
from daceml.onnx_ops.tensor import Output, Tensor, compute, is_float
from daceml.onnx_ops.trace import Refused
from daceml.sdfg.scalar import DType, Index, Scalar, index_value, literal

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """One resized dimension.

    Attributes:
        axis: of the tensor.
        extent, outputs: sizes before and after.
        scale: as given; None where the sizes are.
    """

    axis: int
    extent: Index
    outputs: Index
    scale: float | None


@dataclass(frozen=True, kw_only=True)
class ResizedAxis:
    """What the outputs of one dimension read: places [taps, outputs] and weights; None are all 1."""

    axis: int
    count: int
    places: Tensor
    weights: Tensor | None


@implements("Resize", name="tables")
def resize(
    X: Tensor,
    roi: Tensor | None,
    scales: Tensor | None,
    sizes: Tensor | None,
    Y: Output,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> None:
    found = resized_axes(
        *(X, Y, scales, axes, antialias, coordinate_transformation_mode, cubic_coeff_a, exclude_outside),
        *(keep_aspect_ratio_policy, mode, nearest_mode),
    )
    if isinstance(found, list):
        Y[:] = compute(Y.shape, _interpolated(X, found))
        return
    target, source = Y, X
    for axis in sorted(found, reverse=True):
        target = target.split(axis, (X.shape[axis], found[axis]))
        source = source.expand_dims(axis + 1)
    target[:] = source


def resized_axes(
    X: Tensor,
    Y: Tensor,
    scales: Tensor | None,
    axes: Sequence[int] | None,
    antialias: int,
    coordinates: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    keep_aspect_ratio_policy: str,
    mode: str,
    nearest_mode: str,
) -> list[ResizedAxis] | dict[int, int]:
    """What the outputs of each resized dimension read, or axis -> factor where elements are repeated."""
    if coordinates not in _COORDINATES:
        raise Refused(f"coordinates {coordinates!r}")
    if antialias or exclude_outside:
        raise Refused("antialias=1" if antialias else "exclude_outside=1")
    if keep_aspect_ratio_policy != "stretch":
        raise Refused(f"keep_aspect_ratio_policy={keep_aspect_ratio_policy!r}")
    if mode != "nearest" and not is_float(X):
        raise Refused(f"{mode} interpolation of {X.dtype.to_string()}")
    rows = _resized(X, Y, scales, axes)
    if mode == "nearest" and (factors := _repeats(rows, coordinates, nearest_mode)) is not None:
        return factors
    wide = dace.float64 if X.dtype == dace.float64 and mode != "nearest" else dace.float32
    found: list[ResizedAxis] = []
    for row in rows:
        place = _coordinate(row, coordinates, wide)
        match mode:
            case "nearest":
                found.append(_nearest(row, place, nearest_mode))
            case "linear":
                found.append(_linear(row, place))
            case _:
                found.append(_cubic(row, place, cubic_coeff_a))
    return found


def _resized(X: Tensor, Y: Tensor, scales: Tensor | None, axes: Sequence[int] | None) -> list[_Axis]:
    chosen = range(X.rank) if axes is None else [axis_of(a, X.rank) for a in axes]
    factors: list[float | None] = [None] * len(chosen)
    if scales is not None and not same(scales.size, 0):
        if scales.value is None:
            raise Refused("scales is no constant")
        # A scale that was written as 1.7 is 1.7, not the nearest float32.
        factors = [exact_float(v) for v in np.asarray(scales.value).reshape(-1)]
    rows: list[_Axis] = []
    for axis, factor in zip(chosen, factors, strict=True):
        extent, outputs = X.shape[axis], Y.shape[axis]
        if same(extent, outputs) and factor in (None, 1.0):
            continue
        rows.append(_Axis(axis=axis, extent=extent, outputs=outputs, scale=factor))
    return rows


def _repeats(rows: Sequence[_Axis], coordinates: str, rounding: str) -> dict[int, int] | None:
    """Axis -> factor of a nearest resize by whole factors, with affine indices; None where it is none."""
    if (coordinates, rounding) != ("asymmetric", "floor"):
        return None
    factors: dict[int, int] = {}
    for row in rows:
        factor = divide(row.outputs, row.extent)
        if not isinstance(factor, int) or (row.scale is not None and row.scale != factor):
            return None
        if not isinstance(row.outputs, int) and factor & (factor - 1):
            return None
        if isinstance(row.outputs, int):
            # torch rounds: output 41 k, divided by 41 in float32, may be just below k.
            steps = np.arange(row.outputs, dtype=np.float32) * np.float32(1 / factor)
            if (np.floor(steps) != np.arange(row.outputs) // factor).any():
                return None
        factors[row.axis] = factor
    return factors


def _coordinate(row: _Axis, mode: str, wide: DType) -> Callable[[Index], Scalar]:
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


def _inside(position: Scalar, extent: Index) -> Scalar:
    return minimum(maximum(position, 0), index_value(extent - 1))


def _nearest(row: _Axis, place: Callable[[Index], Scalar], rounding: str) -> ResizedAxis:
    def rounded(o: Index) -> Scalar:
        x = place(o)
        match rounding:
            case "floor":
                return np.floor(x)
            case "ceil":
                return np.ceil(x)
            case "round_prefer_ceil":
                return np.floor(x + 0.5)
            case "round_prefer_floor":
                return np.ceil(x - 0.5)
            case _:
                raise Refused(f"nearest_mode {rounding!r}")

    def element(_: Index, o: Index) -> Scalar:
        return _inside(rounded(o).astype(dace.int64), row.extent)

    return ResizedAxis(
        axis=row.axis, count=1, places=compute((1, row.outputs), element).materialize(), weights=None
    )


def _linear(row: _Axis, place: Callable[[Index], Scalar]) -> ResizedAxis:
    def bounded(o: Index) -> tuple[Scalar, Scalar]:
        x = maximum(place(o), 0.0)
        return x, _inside(np.floor(x).astype(dace.int64), row.extent)

    def position(tap: Index, o: Index) -> Scalar:
        return minimum(bounded(o)[1] + index_value(tap), index_value(row.extent - 1))

    def weight(tap: Index, o: Index) -> Scalar:
        x, low = bounded(o)
        part = minimum(x - low.astype(x.dtype), 1.0)
        return where(index_value(tap) == 0, 1.0 - part, part)

    return _tables(2, row, position, weight)


def _cubic(row: _Axis, place: Callable[[Index], Scalar], a: float) -> ResizedAxis:
    """Keys' convolution with coefficient a; taps outside repeat the border."""

    def position(tap: Index, o: Index) -> Scalar:
        return _inside(np.floor(place(o)).astype(dace.int64) + (index_value(tap) - 1), row.extent)

    def weight(tap: Index, o: Index) -> Scalar:
        x = place(o)
        distance = abs(x - np.floor(x) + 1.0 - index_value(tap, x.dtype))
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1.0
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return where(distance <= 1.0, near, far)

    return _tables(4, row, position, weight)


def _tables(
    count: int,
    row: _Axis,
    position: Callable[[Index, Index], Scalar],
    weight: Callable[[Index, Index], Scalar],
) -> ResizedAxis:
    shape = (count, row.outputs)
    return ResizedAxis(
        axis=row.axis,
        count=count,
        places=compute(shape, position).materialize(),
        weights=compute(shape, weight).materialize(),
    )


def _interpolated(X: Tensor, axes: Sequence[ResizedAxis]) -> Callable[..., Scalar]:
    def element(*index: Index) -> Scalar:
        total: Scalar | None = None
        for chosen in product(*(range(t.count) for t in axes)):
            source: list[Index | Scalar] = list(index)
            factor: Scalar | None = None
            for table, tap in zip(axes, chosen, strict=True):
                at = (tap, index[table.axis])
                source[table.axis] = table.places[at]
                if table.weights is not None:
                    weight = table.weights[at]
                    factor = weight if factor is None else factor * weight
            value = X[tuple(source)]
            term = value if factor is None else value * factor
            total = term if total is None else total + term
        assert total is not None
        return total

    return element
