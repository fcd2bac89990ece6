"""Matrices by position: triangles and diagonals."""

from __future__ import annotations

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.sdfg.scalar import Index, Scalar, cast, compute_type, index_value, literal


@implements("Trilu")
def triangle(input: Tensor, k: Tensor | None, output: Output, *, upper: int = 1) -> None:
    zero = literal(0, input.dtype)

    def diagonal(row: Index) -> Scalar:
        """The column where the diagonal crosses a row."""
        if k is None or k.value is not None:
            return index_value(row + (0 if k is None else int(np.asarray(k.value).reshape(-1)[0])))
        return index_value(row) + k[(0,) * k.rank]

    def element(*index: Index) -> Scalar:
        offset, column = diagonal(index[-2]), index_value(index[-1])
        kept = column >= offset if upper else column <= offset
        return where(kept, input[index], zero)

    output[:] = compute(output.shape, element)


@implements("EyeLike")
def eye(input: Tensor, output: Output, *, dtype: int | None = None, k: int = 0) -> None:
    wide = compute_type(output.dtype)

    def element(row: Index, column: Index) -> Scalar:
        on_diagonal = index_value(column) == index_value(row + k)
        return cast(on_diagonal, wide)

    output[:] = compute(output.shape, element)
