"""Sorting, scans, medians, searches, distances: what torch's own kernels do, NaN and ties included.

ONNX orders NaN as each implementation likes, and has no operator for most of these: they are nodes of the
domain "daceml".
"""

from __future__ import annotations

import math

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    FLOATS,
    Value,
    broadcast,
    cast,
    full,
    is_static,
    op,
    rank_of,
    result_dtype,
    sizes_of,
    typed,
)
from daceml.frontend.onnx_export.translations.torch_kernels import kernel

INT64, INT32 = ir.DataType.INT64, ir.DataType.INT32


def _along(name: str, self: Value, dim: int, **attributes: int) -> tuple[Value, Value]:
    """Values and positions along a dimension; of a scalar, the scalar and 0."""
    if rank_of(self) == 0:
        return op.Identity(self), full((), 0, INT64)
    return kernel(name)(self, axis=dim % rank_of(self), **attributes)


@translates("aten.sort.default")
def sort(self: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return _along("Sort", self, dim, descending=int(descending))


@translates("aten.sort.stable")
def sort_stable(
    self: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return sort(self, dim, descending)


@translates("aten.argsort.default", "aten.argsort.stable")
def argsort(self: Value, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Value:
    values, indices = sort(self, dim, descending)
    typed(values, self)
    return indices


@translates("aten.cummax.default")
def cummax(self: Value, dim: int) -> tuple[Value, Value]:
    return _along("CumMax", self, dim)


@translates("aten.cummin.default")
def cummin(self: Value, dim: int) -> tuple[Value, Value]:
    return _along("CumMin", self, dim)


@translates("aten.cumprod.default")
def cumprod(self: Value, dim: int, *, dtype: ir.DataType | None = None) -> Value:
    kind = result_dtype(dtype, self.dtype if self.dtype in FLOATS else INT64)
    assert kind is not None
    operand = cast(self, kind)
    if rank_of(self) == 0:
        return op.Identity(operand)
    return kernel("CumProd")(operand, axis=dim % rank_of(self))


@translates("aten.logcumsumexp.default")
def logcumsumexp(self: Value, dim: int) -> Value:
    if rank_of(self) == 0:
        return op.Identity(self)
    return kernel("LogCumSumExp")(self, axis=dim % rank_of(self))


@translates("aten.median.default")
def median(self: Value) -> Value:
    return kernel("Median")(self)


@translates("aten.median.dim")
def median_dim(self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _along("MedianAlong", self, dim, keepdims=int(keepdim))


@translates("aten.topk.default")
def topk(
    self: Value, k: int | Value, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if not isinstance(k, int):
        raise UntranslatableError("the k largest, for a k that is not known here")
    return _along("TopK", self, dim, k=k, largest=int(largest), sorted=int(sorted))


@translates("aten.kthvalue.default")
def kthvalue(self: Value, k: int | Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    if not isinstance(k, int):
        raise UnsupportedError("the k-th value, for a k that is not known here")
    return _along("KthValue", self, dim, k=k, keepdims=int(keepdim))


@translates("aten.bucketize.Tensor")
def bucketize(self: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _searched(boundaries, self, out_int32, right)


@translates("aten.searchsorted.Tensor")
def searchsorted(
    sorted_sequence: Value,
    self: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    if sorter is not None:
        raise UnsupportedError("a search in a sequence that a sorter brings into order")
    return _searched(sorted_sequence, self, out_int32, right or side == "right")


def _searched(boundaries: Value, values: Value, narrow: bool, right: bool) -> Value:
    if boundaries.dtype != values.dtype:
        raise UnsupportedError(f"a search for {values.dtype} among {boundaries.dtype}")
    found = kernel("SearchSorted")(boundaries, values, right=int(right))
    return op.Cast(typed(found, values, dtype=INT64), to=INT32) if narrow else found


@translates("aten.adaptive_max_pool2d.default")
def adaptive_max_pool2d(self: Value, output_size: list[int]) -> tuple[Value, Value]:
    return kernel("AdaptiveMaxPool2d")(self, size=list(output_size))


@translates("aten._cdist_forward.default")
def cdist_forward(x1: Value, x2: Value, p: float, compute_mode: int | None) -> Value:
    return kernel("Distances")(x1, x2, p=float(p))


@translates("aten.cdist.default")
def cdist(x1: Value, x2: Value, p: float = 2.0, compute_mode: int | None = None) -> Value:
    """By differences, also where torch multiplies matrices: that is as exact or more so."""
    *leading, rows, width = sizes_of(x1)
    *others, columns, _ = sizes_of(x2)
    if not math.isfinite(p) and (leading != others or not is_static(leading)):
        first = typed(op.Unsqueeze(x1, [-2]), x1, shape=(*leading, rows, 1, width))
        second = typed(op.Unsqueeze(x2, [-3]), x2, shape=(*others, 1, columns, width))
        apart = typed(op.Sub(first, second), dtype=x1.dtype, shape=broadcast(first, second))
        return op.ReduceMax(typed(op.Abs(apart), apart), [-1], keepdims=0)
    if leading != others or not is_static(leading):
        raise UntranslatableError("distances between batches of different sizes")
    return kernel("Distances")(x1, x2, p=float(p))


@translates("aten.atan2.default")
def atan2(self: Value, other: Value) -> Value:
    return kernel("Atan2")(self, other)


@translates("aten.hypot.default")
def hypot(self: Value, other: Value) -> Value:
    return kernel("Hypot")(self, other)


@translates("daceml.stop_gradient.default")
def stop_gradient(x: Value) -> Value:
    return kernel("StopGradient")(x)


def _of_numbers(larger: bool) -> object:
    def translate(self: Value, other: Value) -> Value:
        """The larger (smaller) one; of a number and NaN, the number."""
        shape = broadcast(self, other)
        if self.dtype not in FLOATS:
            return (op.Max if larger else op.Min)(self, other)

        # of equal numbers the first is taken, and with it the whole gradient
        first = (op.GreaterOrEqual if larger else op.LessOrEqual)(self, other)
        typed(first, dtype=ir.DataType.BOOL, shape=shape)
        first = op.Or(first, typed(op.IsNaN(other), other, dtype=ir.DataType.BOOL))
        return op.Where(typed(first, dtype=ir.DataType.BOOL, shape=shape), self, other)

    return translate


translates("aten.fmax.default", "prims.fmax.default")(_of_numbers(True))  # pyright: ignore[reportArgumentType]
translates("aten.fmin.default", "prims.fmin.default")(_of_numbers(False))  # pyright: ignore[reportArgumentType]


@translates("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_loss(self: Value, target: Value, reduction: int) -> tuple[Value, Value]:
    # torch's decomposition counts what stands behind the first -1 of the target, too
    raise UnsupportedError(
        "multilabel_margin_loss: ONNX has no operator, and torch no right decomposition, for it"
    )
