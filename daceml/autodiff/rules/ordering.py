"""Operators that choose elements: a value's gradient goes to where it was."""

from __future__ import annotations

import dace

from daceml.autodiff.rules.gather import gather_elements_vjp, zeros
from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.native.gather import check_positions, position
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.scatter import Place, scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.sdfg.scalar import Index, Scalar, compute_type, literal


def _put_back(gradient: Output, indices: Tensor, values: Tensor, axis: int) -> None:
    """`gradient[indices along axis] = values`, zero elsewhere."""
    axis = axis_of(axis, gradient.rank)
    extent = gradient.shape[axis]
    check_positions(indices, extent)
    held = indices.closed()
    places: list[Place] = list(range(gradient.rank))
    places[axis] = lambda index: position(held, index, extent)
    scatter(gradient, zeros(gradient), values, places, "none")


_POSITIONS = {"indices": lambda values: (values.shape, dace.int64)}


@vjp("TopK", wrt="X", name="TopKGrad", extra={"Indices": lambda Values: (Values.shape, dace.int64)})
def topk_vjp(
    Indices: Tensor, dValues: Tensor, dX: Output, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> None:
    """ONNX's operator."""
    _put_back(dX, Indices, dValues, axis)


@vjp("TopK", domain=DOMAIN, wrt="data", name="TorchTopKGrad", extra=_POSITIONS)
def torch_topk_vjp(indices: Tensor, dvalues: Tensor, ddata: Output, *, axis: int) -> None:
    """torch's operator: its own order of equal values."""
    _put_back(ddata, indices, dvalues, axis)


@vjp("Sort", domain=DOMAIN, wrt="data", name="SortGrad", extra=_POSITIONS)
def sort_vjp(indices: Tensor, dvalues: Tensor, ddata: Output, *, axis: int) -> None:
    """A permutation, undone."""
    _put_back(ddata, indices, dvalues, axis)


def _chosen(indices: Tensor, dvalues: Tensor, ddata: Output, axis: int, keepdims: int) -> None:
    if not keepdims:
        place = axis_of(axis, ddata.rank)
        indices, dvalues = indices.expand_dims(place), dvalues.expand_dims(place)
    _put_back(ddata, indices, dvalues, axis)


@vjp("MedianAlong", domain=DOMAIN, wrt="data", name="MedianAlongGrad", extra=_POSITIONS)
def median_vjp(indices: Tensor, dvalues: Tensor, ddata: Output, *, axis: int, keepdims: int) -> None:
    """The element that is the median."""
    _chosen(indices, dvalues, ddata, axis, keepdims)


@vjp("KthValue", domain=DOMAIN, wrt="data", name="KthValueGrad", extra=_POSITIONS)
def kth_value_vjp(indices: Tensor, dvalues: Tensor, ddata: Output, *, axis: int, keepdims: int) -> None:
    """The element that is the k-th."""
    _chosen(indices, dvalues, ddata, axis, keepdims)


@vjp("Median", domain=DOMAIN, wrt="data", name="MedianGrad")
def whole_median_vjp(data: Tensor, values: Tensor, dvalues: Tensor, ddata: Output) -> None:
    """Equal shares for all elements that are the median, as torch has it; NaN is one where there is one."""
    dtype = compute_type(data.dtype)
    one, zero = literal(1, dtype), literal(0, dtype)

    def chosen(*index: Index) -> Scalar:
        value, element = values[()], data[index]
        both_nan = where(value != value, where(element != element, one, zero), zero)
        return where(element == value, one, both_nan)

    share = (dvalues / compute((), lambda: sum_over(data.shape, chosen))).materialize()
    ddata[:] = compute(data.shape, lambda *index: chosen(*index) * share[()])


@vjp("CumMax", domain=DOMAIN, wrt="data", name="CumMaxGrad", extra=_POSITIONS)
def cumulative_maximum_vjp(indices: Tensor, dvalues: Tensor, ddata: Output, *, axis: int) -> None:
    """An element is the largest for a while: it gets the sum."""
    gather_elements_vjp(indices, dvalues, ddata, axis=axis)


@vjp("CumMin", domain=DOMAIN, wrt="data", name="CumMinGrad", extra=_POSITIONS)
def cumulative_minimum_vjp(indices: Tensor, dvalues: Tensor, ddata: Output, *, axis: int) -> None:
    """An element is the smallest for a while: it gets the sum."""
    gather_elements_vjp(indices, dvalues, ddata, axis=axis)
