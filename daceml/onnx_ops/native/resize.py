"""Resizing: nearest, linear and cubic interpolation, one dimension's coordinates at a time.

A nearest resize by a whole factor only repeats or skips elements: its indices are affine. Otherwise each
resized dimension gets two small tables, the places that an output reads and their weights, so that the loop
over all elements computes no coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import dace
import numpy as np

from daceml.onnx_ops.native.resize_axes import (
    Axis,
    Place,
    ResizedAxis,
    coordinate,
    filtered,
    inside,
    keys,
    only_inside,
    tables,
)
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.schema.schema import exact_float
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.indexing import axis_of, divide, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, is_float
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal

_COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "half_pixel_symmetric",
    "tf_crop_and_resize",
)
_POLICIES: dict[str, Callable[[Iterable[float]], float]] = {"not_larger": min, "not_smaller": max}


@dataclass(frozen=True, kw_only=True)
class Resizing:
    """What a Resize is told, beside its operand: ONNX's inputs and attributes, under their names."""

    roi: Tensor | None
    scales: Tensor | None
    sizes: Tensor | None
    antialias: int
    axes: Sequence[int] | None
    coordinate_transformation_mode: str
    cubic_coeff_a: float
    exclude_outside: int
    keep_aspect_ratio_policy: str
    mode: str
    nearest_mode: str


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
    how = Resizing(
        roi=roi,
        scales=scales,
        sizes=sizes,
        antialias=antialias,
        axes=axes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        mode=mode,
        nearest_mode=nearest_mode,
    )
    found = resized_axes(X, Y, how)
    if isinstance(found, list):
        Y[:] = compute(Y.shape, _interpolated(X, found, extrapolation_value))
        return
    target, source = Y, X
    for axis in sorted(found, reverse=True):
        target = target.split(axis, (X.shape[axis], found[axis]))
        source = source.expand_dims(axis + 1)
    target[:] = source


def resized_axes(X: Tensor, Y: Tensor, how: Resizing) -> list[ResizedAxis] | dict[int, int]:
    """What the outputs of each resized dimension read, or axis -> factor where elements are repeated."""
    coordinates, mode = how.coordinate_transformation_mode, how.mode
    if coordinates not in _COORDINATES:
        raise Refused(f"coordinates {coordinates!r}")
    if mode == "nearest" and how.exclude_outside:
        raise Refused("exclude_outside=1 leaves nothing of a nearest element outside")
    if mode != "nearest" and not is_float(X):
        raise Refused(f"{mode} interpolation of {X.dtype.to_string()}")
    rows = _resized(X, Y, how)
    if mode == "nearest" and (factors := _repeats(rows, coordinates, how.nearest_mode)) is not None:
        return factors
    exact = (X.dtype == dace.float64 and mode != "nearest") or coordinates == "tf_crop_and_resize"
    wide = dace.float64 if exact else dace.float32
    found: list[ResizedAxis] = []
    for row in rows:
        place = coordinate(row, coordinates, wide)
        table = _table(row, place, how)
        if row.crop is not None:
            table = only_inside(table, row, place, compute_type(X.dtype) if is_float(X) else None)
        found.append(table)
    return found


def _table(row: Axis, place: Place, how: Resizing) -> ResizedAxis:
    if how.mode == "nearest":
        return _nearest(row, place, how.nearest_mode)
    if how.antialias or how.exclude_outside:
        return filtered(
            row, place, how.mode, how.cubic_coeff_a, bool(how.antialias), bool(how.exclude_outside)
        )
    return _linear(row, place) if how.mode == "linear" else _cubic(row, place, how.cubic_coeff_a)


def _resized(X: Tensor, Y: Tensor, how: Resizing) -> list[Axis]:
    chosen = range(X.rank) if how.axes is None else [axis_of(a, X.rank) for a in how.axes]
    crops: list[tuple[float, float] | None] = [None] * len(chosen)
    if how.coordinate_transformation_mode == "tf_crop_and_resize":
        region = _numbers(how.roi, "roi")
        if region is None:
            raise Refused("tf_crop_and_resize without a roi")
        if len(region) != 2 * len(chosen):
            raise Refused(f"a roi of {len(region)} numbers for {len(chosen)} axes")
        crops = list(zip(region[: len(chosen)], region[len(chosen) :], strict=True))
    factors = _numbers(how.scales, "scales") or _common_factors(X, chosen, how) or [None] * len(chosen)
    rows: list[Axis] = []
    for axis, factor, crop in zip(chosen, factors, crops, strict=True):
        extent, outputs = X.shape[axis], Y.shape[axis]
        if same(extent, outputs) and factor in (None, 1.0) and crop in (None, (0.0, 1.0)):
            continue
        rows.append(Axis(axis=axis, extent=extent, outputs=outputs, scale=factor, crop=crop))
    return rows


def _numbers(operand: Tensor | None, name: str) -> list[float] | None:
    """A constant operand; None where it is not given."""
    if operand is None or same(operand.size, 0):
        return None
    if operand.value is None:
        raise Refused(f"{name} is not constant")
    # A scale that was written as 1.7 is 1.7, not the nearest float32.
    return [exact_float(v) for v in np.asarray(operand.value).reshape(-1)]


def _common_factors(X: Tensor, chosen: Sequence[int], how: Resizing) -> list[float] | None:
    """The one scale of all axes that keeps their ratio; None where each has its own."""
    policy = how.keep_aspect_ratio_policy
    if policy == "stretch":
        return None
    if policy not in _POLICIES:
        raise Refused(f"there is no keep_aspect_ratio_policy {policy!r}")
    sizes = _numbers(how.sizes, "sizes")
    extents = [X.shape[axis] for axis in chosen]
    if sizes is None or len(sizes) != len(extents) or not all(isinstance(e, int) and e for e in extents):
        raise Refused(f"keep_aspect_ratio_policy={policy!r} without sizes, before and after, that are known")
    ratios = [size / int(extent) for size, extent in zip(sizes, extents, strict=True)]  # pyright: ignore[reportArgumentType]
    return [_POLICIES[policy](ratios)] * len(ratios)


def _repeats(rows: Sequence[Axis], coordinates: str, rounding: str) -> dict[int, int] | None:
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


def _nearest(row: Axis, place: Place, rounding: str) -> ResizedAxis:
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
        return inside(rounded(o).astype(dace.int64), row.extent)

    return ResizedAxis(
        axis=row.axis, count=1, places=compute((1, row.outputs), element).materialize(), weights=None
    )


def _linear(row: Axis, place: Place) -> ResizedAxis:
    def bounded(o: Index) -> tuple[Scalar, Scalar]:
        x = maximum(place(o), 0.0)
        return x, inside(np.floor(x).astype(dace.int64), row.extent)

    def position(tap: Index, o: Index) -> Scalar:
        return minimum(bounded(o)[1] + index_value(tap), index_value(row.extent - 1))

    def weight(tap: Index, o: Index) -> Scalar:
        x, low = bounded(o)
        part = minimum(x - low.astype(x.dtype), 1.0)
        return where(index_value(tap) == 0, 1.0 - part, part)

    return tables(2, row, position, weight)


def _cubic(row: Axis, place: Place, a: float) -> ResizedAxis:
    """Keys' convolution with coefficient a; taps outside repeat the border."""

    def position(tap: Index, o: Index) -> Scalar:
        return inside(np.floor(place(o)).astype(dace.int64) + (index_value(tap) - 1), row.extent)

    def weight(tap: Index, o: Index) -> Scalar:
        x = place(o)
        return keys(abs(x - np.floor(x) + 1.0 - index_value(tap, x.dtype)), a)

    return tables(4, row, position, weight)


def _interpolated(X: Tensor, axes: Sequence[ResizedAxis], outside: float) -> Callable[..., Scalar]:
    def weighted(*index: Index) -> Scalar:
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

    def element(*index: Index) -> Scalar:
        value = weighted(*index)
        for table in axes:
            if table.inside is not None:
                value = where(table.inside[index[table.axis]], value, literal(outside, value.dtype))
        return value

    return element
