"""The first of few elements: each is compared with every other one, and nothing is sorted.

Eight experts of which each token takes two, ten classes of which the best five count: as a loop it is fused
with what makes the scores and with what reads the choice. Longer rows are sorted by torch's kernel.
"""

from __future__ import annotations

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, is_float, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, index_value, literal

# Comparisons go with the square: on one thread with AVX-512, 4,096 rows of 8, 12, 16 and 32 elements
# take 0.7, 2.2, 5.0 and 18 ms, and torch's sort 0.7, 1.2, 1.7 and 4.1
_MOST = 8


@implements("TopK", rank=50)
def top_k(
    X: Tensor,
    K: Tensor,
    Values: Output | None,
    Indices: Output | None,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> None:
    """Of equal elements the one at the lower index is first; NaN is the largest number, as in torch."""
    axis = axis_of(axis, X.rank)
    extent = X.shape[axis]
    if not isinstance(extent, int) or extent > _MOST:
        raise Refused(f"{extent} elements are too many to compare each with each")
    x = X.materialize()

    def along(index: tuple[Index, ...], place: Index) -> tuple[Index, ...]:
        return (*index[:axis], place, *index[axis + 1 :])

    def rank(*index: Index) -> Scalar:
        """How many come before."""
        mine = x[index]

        def before(k: Index) -> Scalar:
            other = x[along(index, k)]
            first, same = _precedes(other, mine, bool(largest), is_float(x))
            earlier = same & (index_value(k) < index_value(index[axis]))
            return where(first | earlier, literal(1, dace.int64), literal(0, dace.int64))

        return sum_over((extent,), before)

    ranks = compute(X.shape, rank).materialize()
    shape = (Values or Indices).shape  # pyright: ignore[reportOptionalMemberAccess]

    def position(*index: Index) -> Scalar:
        def there(k: Index) -> Scalar:
            chosen = ranks[along(index, k)] == index_value(index[axis])
            return where(chosen, index_value(k), literal(0, dace.int64))

        return sum_over((extent,), there)

    places = compute(shape, position).materialize()
    if Indices is not None:
        Indices[:] = places
    if Values is not None:
        Values[:] = compute(shape, lambda *index: x[(*index[:axis], places[index], *index[axis + 1 :])])


def _precedes(a: Scalar, b: Scalar, largest: bool, may_be_nan: bool) -> tuple[Scalar, Scalar]:
    """Whether a comes before b whatever their places, and whether they are equal."""
    first, same = (a > b if largest else a < b), a == b
    if not may_be_nan:
        return first, same
    more, less = (np.isnan(a), np.isnan(b)) if largest else (np.isnan(b), np.isnan(a))
    return first | (more & np.logical_not(less)), same | (more & less)
