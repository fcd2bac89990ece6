"""Distances between rows: each pulls its two rows apart."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.torch_kernels import DOMAIN
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.sdfg.scalar import DType, Index, Scalar, compute_type, literal


@vjp("Distances", domain=DOMAIN)
def distances_vjp(
    first: Tensor,
    second: Tensor,
    result: Tensor,
    dresult: Tensor,
    dfirst: Output | None,
    dsecond: Output | None,
    *,
    p: float,
) -> None:
    """d/da |a - b|_p = sign(a - b) |a - b|^(p-1) / |a - b|_p^(p-1); 0 between equal rows, as torch has it."""
    slope = _slope(p, compute_type(first.dtype))

    def share(*index: Index, row: Index, column: Index) -> Scalar:
        outer, feature = index[:-1], index[-1]
        apart = first[(*outer, row, feature)] - second[(*outer, column, feature)]
        return slope(apart, result[(*outer, row, column)]) * dresult[(*outer, row, column)]

    def of_first(*index: Index) -> Scalar:
        *outer, row, feature = index
        return sum_over((second.shape[-2],), lambda k: share(*outer, feature, row=row, column=k))

    def of_second(*index: Index) -> Scalar:
        *outer, column, feature = index
        return -sum_over((first.shape[-2],), lambda k: share(*outer, feature, row=k, column=column))

    if dfirst is not None:
        dfirst[:] = compute(first.shape, of_first)
    if dsecond is not None:
        dsecond[:] = compute(second.shape, of_second)


def _slope(p: float, dtype: DType) -> Callable[[Scalar, Scalar], Scalar]:
    """Derivative of a distance by the difference of one coordinate, given both."""
    zero = literal(0, dtype)
    if p == 0:
        return lambda apart, distance: zero
    if p == 1:
        return lambda apart, distance: where(apart != apart, apart, np.sign(apart))
    if p == math.inf:  # NaN where the distance is; of equally large differences, each gets all of it
        return lambda apart, distance: where(
            distance != distance, distance, where(np.abs(apart) == distance, np.sign(apart), zero)
        )
    if p == 2:
        return lambda apart, distance: where(distance == zero, zero, apart / distance)

    def general(apart: Scalar, distance: Scalar) -> Scalar:
        value = np.sign(apart) * np.abs(apart / distance) ** (p - 1)
        if p < 1:
            value = where(apart == zero, zero, value)
        return where(distance == zero, zero, value)

    return general
