"""Pooling over windows and over all positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import dace
import numpy as np

from daceml.onnx_ops.native.pad import padded
from daceml.onnx_ops.native.windows import Windows, windows_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import Position, flatten_index, floor_div
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, is_float, max_over, min_over, sum_over
from daceml.sdfg.scalar import Index, Scalar, apply, identity, index_value, literal
from daceml.sdfg.sizes import product

# Windows of so many elements are reduced one dimension after the other
_SEPARATED = 16


def _needs_space(X: Tensor) -> str | None:
    return None if X.rank >= 3 else "needs [N, C, spatial...]"


def _padded(X: Tensor, windows: Windows, outputs: Sequence[Index], value: float, ceil_mode: int) -> Tensor:
    """X with its padding, and what ceil_mode needs behind it."""
    spatial = range(len(windows.kernel))
    after = [windows.after[a] + windows.missing(a, X.shape[2 + a], outputs[a], ceil_mode) for a in spatial]
    return padded(X, (0, 0, *windows.before), (0, 0, *after), value)


@implements("MaxPool", name="direct", when=_needs_space)
def max_pool(
    X: Tensor,
    Y: Output,
    Indices: Output | None = None,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> None:
    windows = windows_of(
        X.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    x = _padded(X, windows, Y.shape[2:], identity("max", X.dtype).data, ceil_mode)
    if math.prod(windows.kernel) >= _SEPARATED:
        Y[:] = _maxima_by_dimension(x, windows, Y.shape[2:])
    else:

        def element(n: Index, c: Index, *position: Index) -> Scalar:
            return max_over(windows.kernel, lambda *k: x[(n, c, *windows.position(position, k))])

        Y[:] = compute(Y.shape, element)
    if Indices is not None:
        Indices[:] = _indices_of_maxima(X, x, Y, windows, storage_order)


def _indices_of_maxima(X: Tensor, x: Tensor, Y: Output, windows: Windows, storage_order: int) -> Tensor:
    """Where in the whole of X each maximum is: the first one of a window, and the last NaN, as in torch.

    Args:
        x: X with its padding.
    """
    extents = X.shape[2:]
    plane, nowhere = product(extents), literal(2**31 - 1, dace.int32)

    def flat(place: Sequence[Position]) -> Any:
        if storage_order:
            return flatten_index(place[::-1], extents[::-1])
        return flatten_index(place, extents)

    def element(n: Index, c: Index, *position: Index) -> Scalar:
        largest = Y[(n, c, *position)]

        def term(*k: Index) -> Scalar:
            place = windows.position(position, k)
            value = x[(n, c, *place)]
            index = flat([p - b for p, b in zip(place, windows.before, strict=True)])
            found = where(value == largest, index_value(index, dace.int32), nowhere)
            # a NaN counts as -1 - index, so that the smallest is the last one
            return where(value != value, index_value(-1 - index, dace.int32), found) if is_float(X) else found

        found = min_over(windows.kernel, term)
        found = where(found < 0, -1 - found, found) if is_float(X) else found
        if x is not X:  # padding is no maximum, even where it equals one
            first = flat(
                [
                    _first_inside(o, axis, windows, e)
                    for axis, (o, e) in enumerate(zip(position, extents, strict=True))
                ]
            )
            lowest = literal(identity("max", X.dtype).data, largest.dtype)
            found = where(largest == lowest, first.astype(dace.int32), found)
        return found.astype(dace.int64) + index_value((n * X.shape[1] + c) * plane)

    return compute(Y.shape, element)


def _first_inside(o: Index, axis: int, windows: Windows, extent: Index) -> Scalar:
    """The first place of a window that lies in the input."""
    start = index_value(o * windows.strides[axis] - windows.before[axis])
    skipped = _ceil_div(apply("max", 0 - start, 0), windows.dilations[axis])
    return apply("min", start + skipped * windows.dilations[axis], index_value(extent - 1))


def _maxima_by_dimension(x: Tensor, windows: Windows, outputs: Sequence[Index]) -> Tensor:
    """Maxima along one dimension after the other: 5 + 5 comparisons for a window of 5 x 5."""
    for axis, extent in enumerate(outputs):
        at, step, spread = axis + 2, windows.strides[axis], windows.dilations[axis]

        def element(
            *index: Index,
            x: Tensor = x,
            at: int = at,
            step: int = step,
            spread: int = spread,
            axis: int = axis,
        ) -> Scalar:
            def inside(k: Index) -> Scalar:
                return x[(*index[:at], index[at] * step + k * spread, *index[at + 1 :])]

            return max_over((windows.kernel[axis],), inside)

        x = compute((*x.shape[:at], extent, *x.shape[at + 1 :]), element)
    return x


@implements("AveragePool", name="direct", when=_needs_space)
def average_pool(
    X: Tensor,
    Y: Output,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    windows = windows_of(
        X.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    x = _padded(X, windows, Y.shape[2:], 0, ceil_mode)

    def element(n: Index, c: Index, *position: Index) -> Scalar:
        total = sum_over(windows.kernel, lambda *k: x[(n, c, *windows.position(position, k))])
        count = window_count(X, Y, windows, position, bool(count_include_pad), ceil_mode)
        return total / (literal(count, total.dtype) if isinstance(count, int) else count.astype(total.dtype))

    Y[:] = compute(Y.shape, element)


def window_count(
    X: Tensor, Y: Tensor, windows: Windows, position: Sequence[Index], include_pad: bool, ceil_mode: int
) -> int | Scalar:
    """Elements of a window that count: those inside the input, or inside input and padding.

    What ceil_mode adds behind the padding never counts.
    """
    count: int | Scalar = 1
    for axis, o in enumerate(position):
        extent, stride, dilation = X.shape[2 + axis], windows.strides[axis], windows.dilations[axis]
        before, after = windows.before[axis], windows.after[axis]
        beyond = windows.missing(axis, extent, Y.shape[2 + axis], ceil_mode)
        low = 0 if include_pad else before
        high = (before + extent + after) if include_pad else before + extent
        if (include_pad or not (before or after)) and not beyond:
            along: int | Scalar = windows.kernel[axis]
        else:
            # Offsets k with low <= start + k * dilation < high, counted as a difference of two ceilings.
            start = index_value(o * stride, dace.int64)
            first = _ceil_div(apply("max", low - start, 0), dilation)
            last = apply("min", _ceil_div(apply("max", high - start, 0), dilation), windows.kernel[axis])
            along = apply("max", last - first, 0)
        count = along if isinstance(count, int) and count == 1 else along * count
    return count


def _ceil_div(value: Scalar, divisor: int) -> Scalar:
    return value if divisor == 1 else floor_div(value + (divisor - 1), divisor)


@implements("LpPool", name="direct", when=_needs_space)
def lp_pool(
    X: Tensor,
    Y: Output,
    *,
    kernel_shape: Sequence[int],
    p: int = 2,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    windows = windows_of(
        X.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    x = _padded(X, windows, Y.shape[2:], 0, ceil_mode)

    def element(n: Index, c: Index, *position: Index) -> Scalar:
        total = sum_over(windows.kernel, lambda *k: np.abs(x[(n, c, *windows.position(position, k))]) ** p)
        return total ** (1.0 / p)

    Y[:] = compute(Y.shape, element)


def _global(X: Tensor, Y: Output, how: Literal["mean", "max"]) -> None:
    axes = range(2, X.rank)
    Y[:] = X.mean(axes, keepdims=True) if how == "mean" else X.max(axes, keepdims=True)


@implements("GlobalAveragePool")
def global_average_pool(X: Tensor, Y: Output) -> None:
    _global(X, Y, "mean")


@implements("GlobalMaxPool")
def global_max_pool(X: Tensor, Y: Output) -> None:
    _global(X, Y, "max")


@implements("GlobalLpPool")
def global_lp_pool(X: Tensor, Y: Output, *, p: int = 2) -> None:
    Y[:] = (np.abs(X) ** p).sum(range(2, X.rank), keepdims=True) ** (1.0 / p)
