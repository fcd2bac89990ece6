"""Deformable convolution: each tap of each window is read where an offset says, between elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import dace
import numpy as np

from daceml.onnx_ops.native.windows import windows_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.indexing import divide, floor_div
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal

# Places beyond are taken for it: they still fit an int64, and NaN becomes one of them.
_FAR = 2.0**30


@implements("DeformConv", when=lambda X: None if X.rank >= 3 else "needs [N, C, spatial...]")
def deformable_convolution(
    X: Tensor,
    W: Tensor,
    offset: Tensor,
    B: Tensor | None,
    mask: Tensor | None,
    Y: Output,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    windows = windows_of(
        X.shape[2:],
        kernel_shape or W.shape[2:],
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad="NOTSET",
    )
    space = X.rank - 2
    in_group, outputs = W.shape[1], divide(W.shape[0], group)
    per_offset = divide(X.shape[1], offset_group)
    if outputs is None or per_offset is None:
        raise Refused(f"{X.shape[1]} and {W.shape[0]} channels in {group} and {offset_group} groups")
    taps = int(np.prod(windows.kernel))
    dtype = compute_type(X.dtype)

    def element(n: Index, out: Index, *position: Index) -> Scalar:
        def term(c: Index, *k: Index) -> Scalar:
            channel = floor_div(out, outputs) * in_group + c if group > 1 else c
            # the offsets of a tap: [offset group, tap, dimension]
            tap: Index = 0
            for size, at in zip(windows.kernel, k, strict=True):
                tap = tap * size + at
            shared = floor_div(channel, per_offset) if offset_group > 1 else 0
            tap = shared * taps + tap
            places: list[Scalar] = []
            for d, start in enumerate(windows.position(position, k)):
                moved = offset[(n, tap * space + d, *position)].astype(dtype)
                places.append(index_value(start - windows.before[d]).astype(dtype) + moved)
            value = _between(X, n, channel, places)
            value = value if mask is None else value * mask[(n, tap, *position)]
            return value * W[(out, c, *k)]

        total = sum_over((in_group, *windows.kernel), term)
        return total if B is None else total + B[(out,)]

    Y[:] = compute(Y.shape, element)


def _between(X: Tensor, n: Index, channel: Index, places: Sequence[Scalar]) -> Scalar:
    """Linear interpolation of the elements around a place; what lies outside is zero."""
    rows: list[list[tuple[Scalar, Scalar, Scalar]]] = []
    for d, given in enumerate(places):
        place = where(given > -_FAR, where(given < _FAR, given, _FAR), -_FAR)
        first = np.floor(place)
        rest, at = place - first, first.astype(dace.int64)
        last = index_value(X.shape[2 + d] - 1)
        rows.append(
            [
                (minimum(maximum(i, 0), last), (i >= 0) & (i <= last), weight)
                for i, weight in ((at, 1 - rest), (at + 1, rest))
            ]
        )
    total: Scalar | None = None
    for corner in itertools.product(*rows):
        value = X[(n, channel, *(i for i, _, _ in corner))]
        for _, inside, weight in corner:
            value = where(inside, value, literal(0, value.dtype)) * weight
        total = value if total is None else total + value
    assert total is not None
    return total
