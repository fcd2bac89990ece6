"""Matrices by position: triangles and diagonals."""

from __future__ import annotations

import numpy as np

from daceml.onnx_ops.functions import where
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor, compute
from daceml.onnx_ops.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, cast, compute_type, index_value, literal


@implements("Trilu")
def triangle(input: Tensor, k: Tensor | None, output: Output, *, upper: int = 1) -> None:
    if k is not None and k.value is None:
        raise Refused("k is no constant")
    diagonal = 0 if k is None else int(np.asarray(k.value).reshape(-1)[0])
    zero = literal(0, input.dtype)

    def element(*index: Index) -> Scalar:
        offset, column = index_value(index[-2] + diagonal), index_value(index[-1])
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
