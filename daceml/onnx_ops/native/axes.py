"""Operators along one axis: the one that a constant says, or each, to choose from where data says which."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from daceml.onnx_ops.native.gather import check_positions, position
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Tensor, compute
from daceml.sdfg.scalar import Index, Scalar


def along_axis(axis: Tensor, rank: int, along: Callable[[int], Tensor]) -> Tensor:
    """The result for the axis that a constant or a call says; negative ones are counted from the end.

    Args:
        axis: one integer; a call with one that is not in [-rank, rank) is refused.
        along: the result for an axis from 0; of the same shape for each where the axis is no constant.
    """
    if axis.value is not None:
        return along(axis_of(int(np.asarray(axis.value).reshape(-1)[0]), rank))
    check_positions(axis, rank)
    results = [along(known).materialize() for known in range(rank)]
    chosen = position(axis, (0,) * axis.rank, rank)

    def element(*index: Index) -> Scalar:
        value = results[-1][index]
        for known in reversed(range(len(results) - 1)):
            value = where(chosen == known, results[known][index], value)
        return value

    return compute(results[-1].shape, element)
