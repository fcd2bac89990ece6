"""Reductions over axes, and the positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, elementwise, is_float, min_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.nest import Operator
from daceml.sdfg.scalar import Index, Scalar, identity, index_value
from daceml.sdfg.sizes import product

Axes = tuple[int, ...] | None


def constant_axes(axes: Tensor | None) -> Axes:
    """Axes given as an operand; None where there are none."""
    if axes is None or same(axes.size, 0):
        return None
    if axes.value is None:
        raise Refused("axes is not constant")
    return tuple(int(a) for a in np.asarray(axes.value).reshape(-1))


def _mean(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    if is_float(x):
        return x.mean(axes, keepdims)
    total = x.sum(axes, keepdims)
    count = product(x.shape[axis_of(a, x.rank)] for a in (range(x.rank) if axes is None else axes))
    if not isinstance(count, int):
        raise Refused("the mean of integers over a symbolic number of elements")
    return elementwise("trunc_div", total, count)


def _extreme(operator: Operator) -> Callable[[Tensor, Axes, bool], Any]:
    """The largest or smallest element; over no elements what is smaller, or larger, than all others."""

    def of(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        gone = {axis_of(a, x.rank) for a in (range(x.rank) if axes is None else axes)}
        if not any(same(x.shape[a], 0) for a in gone):
            return x.max(axes, keepdims) if operator == "max" else x.min(axes, keepdims)
        shape = [1 if d in gone else e for d, e in enumerate(x.shape) if keepdims or d not in gone]
        return compute(shape, lambda *_: identity(operator, x.dtype))

    return of


def _log_sum_exp(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    largest = _extreme("max")(x, axes, True).materialize()
    # Of all -inf, or with an inf, subtracting the largest would give NaN.
    shift = where(np.isinf(largest), 0, largest)
    total = np.log(np.exp(x - shift).sum(axes, keepdims))
    if keepdims:
        return total + shift
    gone = range(x.rank) if axes is None else axes
    return total + shift.squeeze(*gone)


def _euclidean(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """Of one element, its magnitude, as torch has it: its square may be too large, or 0."""
    if all(same(x.shape[axis_of(a, x.rank)], 1) for a in (range(x.rank) if axes is None else axes)):
        return abs(x).sum(axes, keepdims)
    return np.sqrt((x * x).sum(axes, keepdims))


_ROWS: dict[str, Callable[[Tensor, Axes, bool], Any]] = {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep),
    "ReduceProd": lambda x, axes, keep: x.prod(axes, keep),
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceMean": _mean,
    "ReduceL1": lambda x, axes, keep: abs(x).sum(axes, keep),
    "ReduceL2": _euclidean,
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keep),
    "ReduceLogSum": lambda x, axes, keep: np.log(x.sum(axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _implementation(function: Callable[[Tensor, Axes, bool], Any]) -> Callable[..., None]:
    def reduction(
        data: Tensor,
        axes: Tensor | None,
        reduced: Output,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> None:
        chosen = constant_axes(axes)
        if chosen is None and noop_with_empty_axes:
            # over an axis of one element: the square of ReduceSumSquare is still taken
            reduced[:] = function(data.expand_dims(data.rank), (data.rank,), False)
        else:
            reduced[:] = function(data, chosen, bool(keepdims))

    return reduction


for _op, _function in _ROWS.items():
    implements(_op)(_implementation(_function))


def _position(data: Tensor, reduced: Output, axis: int, keepdims: int, last: int, extreme: str) -> None:
    axis = axis_of(axis, data.rank)
    extent = data.shape[axis]
    best = data.reduce("max" if extreme == "max" else "min", axis, keepdims=True).materialize()

    def place_of_best(index: Sequence[Index], k: Index, place: Scalar) -> Scalar:
        value, target = (
            data[(*index[:axis], k, *index[axis + 1 :])],
            best[(*index[:axis], 0, *index[axis + 1 :])],
        )
        none = identity("min", dace.int64)
        # The first NaN counts as the extreme, as in torch. Two choices: of an `or`, GCC makes branches that
        # depend on data, where the value follows from one itself (a relu), and takes 50 times as long.
        other = where(np.isnan(value), place, none) if is_float(data) else none
        return where(value == target, place, other)

    def position(*index: Index) -> Scalar:
        where_k = index if keepdims else (*index[:axis], 0, *index[axis:])

        def candidate(k: Index) -> Scalar:
            place = extent - 1 - k if last else k
            return place_of_best(where_k, place, index_value(k))

        first = min_over((extent,), candidate)
        return index_value(extent - 1) - first if last else first

    reduced[:] = compute(reduced.shape, position)


@implements("ArgMax")
def arg_max(
    data: Tensor, reduced: Output, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> None:
    _position(data, reduced, axis, keepdims, select_last_index, "max")


@implements("ArgMin")
def arg_min(
    data: Tensor, reduced: Output, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> None:
    _position(data, reduced, axis, keepdims, select_last_index, "min")
