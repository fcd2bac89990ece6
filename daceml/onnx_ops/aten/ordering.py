"""Sorting, scans, searches and selection by torch's kernels: NaN is the largest number, as in torch."""

from __future__ import annotations

from typing import Any

import dace
import numpy as np

from daceml.onnx_ops.aten.views import no_empty_operand, view
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import Argument, AtenCall


def _pair(
    function: str, values: Output | None, indices: Output | None, x: Tensor, *arguments: Argument
) -> AtenCall:
    """A call that gives values, and indices where they are read."""
    assert values is not None
    return AtenCall(
        function=function,
        arguments=(None if indices is None else view(indices), view(x), *arguments),
        writes=values.name,
        more=() if indices is None else (indices.name,),
        fresh=True,
        flops=x.size,
    )


def _first_refusal(X: Tensor, K: Tensor) -> str | None:
    if K.value is None:
        return "K is not constant"
    return no_empty_operand(X)


@implements("TopK", kind="aten", name="sort", when=_first_refusal)
def first_in_order(
    X: Tensor,
    K: Tensor,
    Values: Output,
    Indices: Output | None,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> AtenCall:
    """ONNX's: of equal elements the first comes first, which torch's topk does not promise."""
    count = int(np.asarray(K.value).reshape(-1)[0])
    return _pair("first_in_order", Values, Indices, X, count, axis_of(axis, X.rank), bool(largest))


@implements("TopK", domain=DOMAIN, kind="aten", name="topk")
def topk(
    data: Tensor, values: Output, indices: Output | None, *, k: int, axis: int, largest: int, sorted: int
) -> AtenCall:
    """torch's: which of equal elements comes first is what its kernel makes of them."""
    return _pair("topk", values, indices, data, k, axis, bool(largest), bool(sorted))


@implements("Sort", domain=DOMAIN, kind="aten", name="sort")
def sort(data: Tensor, values: Output, indices: Output | None, *, axis: int, descending: int) -> AtenCall:
    return _pair("sort", values, indices, data, axis, bool(descending))


@implements("KthValue", domain=DOMAIN, kind="aten", name="kthvalue")
def kth_value(
    data: Tensor, values: Output, indices: Output | None, *, k: int, axis: int, keepdims: int
) -> AtenCall:
    return _pair("kthvalue", values, indices, data, k, axis, bool(keepdims))


@implements("MedianAlong", domain=DOMAIN, kind="aten", name="median_along")
def median_along(
    data: Tensor, values: Output, indices: Output | None, *, axis: int, keepdims: int
) -> AtenCall:
    return _pair("median_along", values, indices, data, axis, bool(keepdims))


@implements("Median", domain=DOMAIN, kind="aten", name="median")
def median(data: Tensor, values: Output) -> AtenCall:
    return _single("median", values, view(data))


@implements("AdaptiveMaxPool2d", domain=DOMAIN, kind="aten", name="adaptive_max_pool2d")
def adaptive_max_pool(
    data: Tensor, values: Output, indices: Output | None, *, size: tuple[int, ...]
) -> AtenCall:
    return _pair("adaptive_max_pool2d", values, indices, data, tuple(size))


def _extremes(function: str) -> Any:
    def scan(data: Tensor, values: Output, indices: Output | None, *, axis: int) -> AtenCall:
        return _pair(function, values, indices, data, axis)

    return scan


def _scans(function: str) -> Any:
    def scan(data: Tensor, values: Output, *, axis: int) -> AtenCall:
        return _single(function, values, view(data), axis)

    return scan


for _op in ("CumMax", "CumMin"):
    implements(_op, domain=DOMAIN, kind="aten", name=_op.lower())(_extremes(_op.lower()))
for _op in ("CumProd", "LogCumSumExp"):
    implements(_op, domain=DOMAIN, kind="aten", name=_op.lower())(_scans(_op.lower()))


def _single(function: str, result: Output, *arguments: Argument) -> AtenCall:
    return AtenCall(function=function, arguments=arguments, writes=result.name, fresh=True)


@implements("SearchSorted", domain=DOMAIN, kind="aten", name="searchsorted")
def search_sorted(boundaries: Tensor, values: Tensor, result: Output, *, right: int) -> AtenCall:
    narrow = result.dtype == dace.int32
    return _single("searchsorted", result, view(boundaries), view(values), narrow, bool(right))


@implements("MaskedPut", domain=DOMAIN, kind="aten", name="masked_put")
def masked_put(data: Tensor, mask: Tensor, values: Tensor, result: Output, *, accumulate: int) -> AtenCall:
    return _single("masked_put", result, view(data), view(mask), view(values), bool(accumulate))


@implements("Distances", domain=DOMAIN, kind="aten", name="distances")
def distances(first: Tensor, second: Tensor, result: Output, *, p: float) -> AtenCall:
    return _single("distances", result, view(first), view(second), p)
