"""Samples of an image at places that are data: GridSample, and the grid of an affine map."""

from __future__ import annotations

import itertools

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, is_float
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal

_MODES = {
    "bilinear": "linear",
    "bicubic": "cubic",
    "linear": "linear",
    "cubic": "cubic",
    "nearest": "nearest",
}
_CUBIC = -0.75
# Coordinates beyond are taken for it: they still fit an int64, and NaN becomes one of them.
_FAR = 2.0**30

Tap = tuple[Scalar, Scalar | None]


@implements("GridSample", when=lambda X: None if X.rank >= 3 else "needs [N, C, spatial...]")
def grid_sample(
    X: Tensor,
    grid: Tensor,
    Y: Output,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> None:
    if mode not in _MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise Refused(f"mode {mode!r} with padding {padding_mode!r}")
    if not is_float(X) or not is_float(grid):
        raise Refused(f"samples of {X.dtype.to_string()} at {grid.dtype.to_string()}")
    space = X.rank - 2
    wide = dace.float64 if dace.float64 in (X.dtype, grid.dtype) else dace.float32
    taps_of = {"nearest": _nearest, "linear": _linear, "cubic": _cubic}[_MODES[mode]]

    def element(n: Index, c: Index, *place: Index) -> Scalar:
        rows: list[list[Tap]] = []
        for d in range(space):
            # the grid names coordinates from the last dimension on
            given = grid[(n, *place, space - 1 - d)].astype(wide)
            at = _coordinate(given, X.shape[2 + d], bool(align_corners))
            if padding_mode == "reflection" and _MODES[mode] != "cubic":
                at = where(np.abs(at) < _FAR, at, 0)
            elif padding_mode == "border" and _MODES[mode] != "cubic":
                at = _bounded(at)
            rows.append(taps_of(at))
        total: Scalar | None = None
        for taps in itertools.product(*rows):
            value = _pixel(X, n, c, [at for at, _ in taps], padding_mode, bool(align_corners)).astype(wide)
            for _, weight in taps:
                value = value if weight is None else value * weight
            total = value if total is None else total + value
        assert total is not None
        return total.astype(compute_type(X.dtype))

    Y[:] = compute(Y.shape, element)


def _coordinate(given: Scalar, extent: Index, align_corners: bool) -> Scalar:
    """-1 to 1 on the first to the last element (align_corners) or on the edges of the image."""
    size = index_value(extent, given.dtype)
    return (given + 1) / 2 * (size - 1) if align_corners else ((given + 1) * size - 1) / 2


def _bounded(place: Scalar) -> Scalar:
    return where(place > -_FAR, where(place < _FAR, place, _FAR), -_FAR)


def _nearest(place: Scalar) -> list[Tap]:
    return [(np.rint(_bounded(place)).astype(dace.int64), None)]


def _linear(place: Scalar) -> list[Tap]:
    first = np.floor(place)
    rest = place - first  # NaN where the place is no number, as torch's weights are
    at = _bounded(first).astype(dace.int64)
    return [(at, 1 - rest), (at + 1, rest)]


def _cubic(place: Scalar) -> list[Tap]:
    first = np.floor(place)
    rest = place - first
    at = _bounded(first).astype(dace.int64)

    def near(x: Scalar) -> Scalar:
        return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1

    def far(x: Scalar) -> Scalar:
        return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    return [(at - 1, far(rest + 1)), (at, near(rest)), (at + 1, near(1 - rest)), (at + 2, far(2 - rest))]


def _pixel(
    X: Tensor, n: Index, c: Index, places: list[Scalar], padding_mode: str, align_corners: bool
) -> Scalar:
    """An element of the image as it goes on outside: zeros, its border, or its mirror images."""
    found: list[Scalar] = []
    inside: Scalar | None = None
    for d, at in enumerate(places):
        extent = X.shape[2 + d]
        last = index_value(extent - 1)
        if padding_mode == "zeros":
            holds = (at >= 0) & (at <= last)
            inside = holds if inside is None else inside & holds
        elif padding_mode == "reflection":
            if align_corners:
                # about the first and the last element; a single one is its own image
                period = maximum(2 * last, 1)
                at = at % period
                at = minimum(at, 2 * last - at)
            else:
                period = 2 * index_value(extent)
                at = at % period
                at = minimum(at, period - 1 - at)
        found.append(maximum(minimum(at, last), 0))
    value = X[(n, c, *found)]
    return value if inside is None else where(inside, value, literal(0, value.dtype))


@implements("AffineGrid")
def affine_grid(theta: Tensor, size: Tensor, grid: Output, *, align_corners: int = 0) -> None:
    space = grid.rank - 2
    if not same(theta.shape[1], space):
        raise Refused(f"a map of {theta.shape[1]} dimensions for a grid of {space}")
    dtype = compute_type(theta.dtype)

    def coordinate(place: Index, extent: Index) -> Scalar:
        steps, length = index_value(place).astype(dtype), index_value(extent, dtype)
        if align_corners:
            # one element lies in the middle
            return literal(0, dtype) if same(extent, 1) else steps * 2 / (length - 1) - 1
        return (2 * steps + 1) / length - 1

    def element(*index: Index) -> Scalar:
        n, row = index[0], index[-1]
        total = theta[(n, row, space)]
        for column in range(space):
            d = space - 1 - column
            total = total + theta[(n, row, column)] * coordinate(index[1 + d], grid.shape[1 + d])
        return total

    grid[:] = compute(grid.shape, element)
