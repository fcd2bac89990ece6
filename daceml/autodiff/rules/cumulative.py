"""Cumulative sums and products: what comes later flows back to what came before."""

from __future__ import annotations

import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.native.cumulative import LONGEST, cumulative_sum
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.sdfg.builder import parameters, reduced_parameters
from daceml.sdfg.recurrence import Recurrence
from daceml.sdfg.scalar import Index, Scalar, accumulator_type, compute_type, literal
from daceml.sdfg.scatter import Loop


@vjp("CumSum", wrt="x", name="CumSumGrad")
def cumulative_sum_vjp(axis: Tensor, dy: Tensor, dx: Output, *, exclusive: int = 0, reverse: int = 0) -> None:
    """dx[i] = sum of dy from i on; up to i where the forward sum is reversed."""
    cumulative_sum(dy, axis, dx, exclusive=exclusive, reverse=1 - reverse)


def _short(data: Tensor, axis: int) -> str | None:
    extent = data.shape[axis_of(axis, data.rank)]
    if isinstance(extent, int) and extent > LONGEST:
        return f"{extent} sums of up to {extent} terms each"
    return None


@vjp("LogCumSumExp", domain=DOMAIN, wrt="data", name="LogCumSumExpGrad", when=_short)
def log_cumulative_sum_vjp(
    data: Tensor, values: Tensor, dvalues: Tensor, ddata: Output, *, axis: int
) -> None:
    """dx[i] = sum of dy[k] exp(x[i] - y[k]) from i on, whose exponents are at most 0."""
    along = axis_of(axis, data.rank)

    def element(*index: Index) -> Scalar:
        place = index[along]

        def term(k: Index) -> Scalar:
            later = (*index[:along], place + k, *index[along + 1 :])
            return dvalues[later] * np.exp(data[index] - values[later])

        return sum_over((data.shape[along] - place,), term)

    ddata[:] = compute(data.shape, element)


@vjp("CumProd", domain=DOMAIN, wrt="data", name="CumProdGrad")
def cumulative_product_vjp(data: Tensor, dvalues: Tensor, ddata: Output, *, axis: int) -> None:
    """See `_product_gradient`."""
    _product_gradient(data, dvalues, ddata, axis_of(axis, data.rank))


def _one_axis(axis: Tensor) -> str | None:
    return "axis is not constant" if axis.value is None else None


@vjp("CumProd", wrt="x", name="OnnxCumProdGrad", when=_one_axis)
def onnx_cumulative_product_vjp(
    x: Tensor, axis: Tensor, dy: Tensor, dx: Output, *, exclusive: int = 0, reverse: int = 0
) -> None:
    """See `_product_gradient`."""
    along = axis_of(int(np.asarray(axis.value).reshape(-1)[0]), x.rank)
    _product_gradient(x, dy, dx, along, exclusive=bool(exclusive), reverse=bool(reverse))


def _product_gradient(
    data: Tensor,
    dvalues: Tensor,
    ddata: Output,
    along: int,
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> None:
    """dx[i] = x[0] … x[i-1] (dy[i] + x[i+1] (dy[i+1] + x[i+2] (…))): no division, so zeros are no exception.

    Both factors are recurrences over the steps: forward the product of what came before, backward the sum.
    They run in the type of sums and products, so that the error does not grow with the steps. In an exclusive
    product x[i] first counts in y[i+1]; a reverse one counts steps from the end.
    """
    steps, dtype, trace = data.shape[along], accumulator_type(data.dtype), ddata.trace
    lanes = (*data.shape[:along], *data.shape[along + 1 :]) or (1,)
    lane = parameters(len(lanes))
    step, part = reduced_parameters(2)
    shape = (*lanes, steps + 1, 2)
    array = trace.intermediate("state", shape, dtype).name
    state = Output(shape, dtype, array, trace)

    def place(at: Index) -> tuple[Index, ...]:
        return (*lane[:along], steps - 1 - at if reverse else at, *lane[along : data.rank - 1])

    last = steps - 1 - step
    product = state[(*lane, step, 0)] * data[place(step)].astype(dtype)
    given, behind = dvalues[place(last)].astype(dtype), state[(*lane, step, 1)]
    factor = data[place(last)].astype(dtype)
    total = given + factor * behind if exclusive else factor * (given + behind)
    start = where(part < 1, literal(1, dtype), literal(0, dtype))
    trace.computations.append(
        Recurrence(
            label=trace.label,
            target=array,
            params=lane,
            extents=lanes,
            start=Loop(params=(part,), extents=(2,), index=(*lane, 0, part), value=start),
            step=step,
            steps=steps,
            loops=(
                Loop(params=(part,), extents=(1,), index=(*lane, step + 1, 0), value=product),
                Loop(params=(part,), extents=(1,), index=(*lane, step + 1, 1), value=total),
            ),
        )
    )

    def element(*index: Index) -> Scalar:
        others = (*index[:along], *index[along + 1 :]) or (0,)
        at = steps - 1 - index[along] if reverse else index[along]
        before, behind = state[(*others, at, 0)], state[(*others, steps - 1 - at, 1)]
        after = behind if exclusive else dvalues[index].astype(dtype) + behind
        return (before * after).astype(compute_type(data.dtype))

    ddata[:] = compute(data.shape, element)
