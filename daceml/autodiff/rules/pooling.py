"""Pooling: each element of the input takes from the windows that hold it."""

from __future__ import annotations

from collections.abc import Sequence

import dace

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.native.pooling import window_count
from daceml.onnx_ops.native.transposed_convolution import (
    expanded_taps,
    transposed_axis,
    write_transposed,
)
from daceml.onnx_ops.native.windows import windows_of
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.indexing import flatten_index, unflatten_index
from daceml.onnx_ops.tracing.scatter import scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, min_over
from daceml.sdfg.scalar import Index, Scalar, index_value, literal
from daceml.sdfg.sizes import product

Ints = Sequence[int] | None


@vjp("MaxPool", extra={"Indices": lambda Y: (Y.shape, dace.int64)})
def max_pool_vjp(
    dY: Tensor,
    Indices: Tensor,
    dX: Output,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = None,
    pads: Ints = None,
    storage_order: int = 0,
    strides: Ints = None,
) -> None:
    """Each dY goes to where the forward pass found its maximum; planes are independent."""
    channels, extents = dX.shape[1], dX.shape[2:]
    plane = product(extents)
    order = -1 if storage_order else 1

    def place(axis: int, update: tuple[Index, ...]) -> Scalar:
        n, c = update[:2]
        offset = Indices[update] - index_value((n * channels + c) * plane)
        inside = maximum(minimum(offset, index_value(plane - 1)), 0)
        return unflatten_index(inside, extents[::order])[::order][axis]

    places = [lambda update, axis=axis: place(axis, update) for axis in range(len(extents))]
    scatter(dX, full(dX.shape, 0, dX.dtype), dY, (0, 1, *places), "add")


@vjp(
    "AdaptiveMaxPool2d",
    domain=DOMAIN,
    wrt="data",
    name="AdaptiveMaxPool2dGrad",
    extra={"indices": lambda values: (values.shape, dace.int64)},
)
def adaptive_max_pool_vjp(indices: Tensor, dvalues: Tensor, ddata: Output, *, size: tuple[int, ...]) -> None:
    """Each gradient goes to where its window found the maximum; windows may share elements."""
    plane = ddata.shape[-2:]

    def place(axis: int, update: tuple[Index, ...]) -> Scalar:
        inside = maximum(minimum(indices[update], index_value(product(plane) - 1)), 0)
        return unflatten_index(inside, plane)[axis]

    places = [lambda update, axis=axis: place(axis, update) for axis in range(2)]
    scatter(ddata, full(ddata.shape, 0, ddata.dtype), dvalues, (*range(ddata.rank - 2), *places), "add")


@vjp("AveragePool")
def average_pool_vjp(
    dY: Tensor,
    dX: Output,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> None:
    """dX sums dY / (elements that count) over the windows: a transposed convolution with ones."""
    extents = dX.shape[2:]
    windows = windows_of(
        extents, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )

    def shared(n: Index, c: Index, *position: Index) -> Scalar:
        value = dY[(n, c, *position)]
        count = window_count(dX, dY, windows, position, bool(count_include_pad), ceil_mode)
        return value / (literal(count, value.dtype) if isinstance(count, int) else count.astype(value.dtype))

    if (
        all(n == 1 for n in dY.shape[2:])
        and tuple(windows.kernel) == tuple(extents)
        and not any(windows.before)
    ):
        # one window over everything: AveragePool -> GlobalAveragePool
        dX[:] = compute(dY.shape, shared).broadcast_to(dX.shape)
        return
    axes = [
        transposed_axis(*sizes)
        for sizes in zip(
            *(dY.shape[2:], extents, windows.kernel, windows.strides, windows.dilations, windows.before),
            strict=True,
        )
    ]
    parts = compute(dY.shape, shared)
    if any(axis.taps > 1 and not (axis.before or axis.after) for axis in axes):
        parts = parts.materialize()  # read by several elements
    ones = expanded_taps(full((1, 1, *windows.kernel), 1.0, dX.dtype), axes)
    taps = ones.broadcast_to((dX.shape[1], 1, *ones.shape[2:]))
    write_transposed(parts, taps, None, dX, axes, (dX.shape[1], 1, 1))


@vjp("GlobalAveragePool")
def global_average_pool_vjp(dY: Tensor, dX: Output) -> None:
    """dX = dY / (number of elements of a channel)."""
    count = product(dX.shape[2:])
    dX[:] = compute(dY.shape, lambda *i: dY[i] / index_value(count, dY[i].dtype)).broadcast_to(dX.shape)


@vjp("GlobalMaxPool")
def global_max_pool_vjp(dY: Tensor, X: Tensor, Y: Tensor, dX: Output) -> None:
    """dY goes to the first element that is the maximum, or to the last NaN."""
    space = X.shape[2:]
    ones = (0,) * len(space)

    def first(n: Index, c: Index) -> Scalar:
        largest = Y[(n, c, *ones)]

        def term(*place: Index) -> Scalar:
            value, index = X[(n, c, *place)], flatten_index(place, space)
            found = where(value == largest, index_value(index), literal(2**62, dace.int64))
            return where(value != value, index_value(-1 - index), found)

        found = min_over(space, term)
        return where(found < 0, -1 - found, found)

    chosen = compute(X.shape[:2], first).materialize()

    def element(n: Index, c: Index, *place: Index) -> Scalar:
        value = dY[(n, c, *ones)]
        here = chosen[n, c] == index_value(flatten_index(place, space))
        return where(here, value, literal(0, value.dtype))

    dX[:] = compute(X.shape, element)
