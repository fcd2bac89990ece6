"""Elements and columns that are chosen: by constants, or by what is there."""

from __future__ import annotations

import itertools

import dace
import numpy as np

from daceml.onnx_ops.native.gather import check_positions, position
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar

# Each is a copy of its own
_MOST_RUNS = 256
_ML = "ai.onnx.ml"


@implements("Compress", shape_from=("condition",))
def compress(input: Tensor, condition: Tensor, output: Output, *, axis: int | None = None) -> None:
    """The slices whose condition is true, one copy for each run of neighbours."""
    if condition.value is None:
        raise Refused("condition is not constant, so the number of elements is unknown")
    kept = np.flatnonzero(condition.value).tolist()
    data = input.reshape((input.size,)) if axis is None else input
    along = 0 if axis is None else axis_of(axis, input.rank)
    if not same(output.shape[along], len(kept)):
        raise Refused(f"{len(kept)} slices are kept, and the model says {output.shape[along]}")
    extent = data.shape[along]
    if kept and not (isinstance(extent, int) and kept[-1] < extent):
        raise Refused(f"condition keeps slice {kept[-1]} of {extent}")
    groups = itertools.groupby(enumerate(kept), lambda pair: pair[1] - pair[0])
    runs = [list(run) for _, run in groups]
    if len(runs) > _MOST_RUNS:
        raise Refused(f"{len(runs)} runs of slices would be as many copies")
    before = [slice(None)] * along
    for run in runs:
        (to, first), (_, last) = run[0], run[-1]
        output[(*before, slice(to, to + len(run)))] = data[(*before, slice(first, last + 1))]


@implements("OptionalHasElement")
def optional_has_element(input: Tensor | None, output: Output) -> None:
    """A tensor is there; an input that is left out is not."""
    output[:] = full(output.shape, input is not None, dace.bool_)


@implements("OptionalGetElement")
def optional_get_element(input: Tensor, output: Output) -> None:
    output[:] = input


@implements("ArrayFeatureExtractor", domain=_ML)
def array_feature_extractor(X: Tensor, Y: Tensor, Z: Output) -> None:
    """Columns of X, in the order of Y."""
    columns = Y.reshape((Y.size,))
    check_positions(columns, X.shape[-1])

    def element(*index: Index) -> Scalar:
        # one row for a vector
        leading = index[:-1] if X.rank > 1 else ()
        return X[(*leading, position(columns, index[-1:], X.shape[-1]))]

    Z[:] = compute(Z.shape, element)


@implements("Binarizer", domain=_ML)
def binarizer(X: Tensor, Y: Output, *, threshold: float = 0.0) -> None:
    Y[:] = where(threshold < X, full(X.shape, 1, X.dtype), full(X.shape, 0, X.dtype))
