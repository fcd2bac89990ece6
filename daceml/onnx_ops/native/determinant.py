"""Determinants of small matrices, by the expansion of the first row."""

from __future__ import annotations

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, literal

# 4! products; beyond, an elimination with pivots is right, which no loop of independent elements is
_LARGEST = 4


@implements("Det")
def determinant(X: Tensor, Y: Output) -> None:
    order = X.shape[-1]
    if not isinstance(order, int) or order > _LARGEST:
        raise Refused(f"a determinant of order {order}; up to {_LARGEST} are expanded")

    def element(*outer: Index) -> Scalar:
        def minor(row: int, columns: tuple[int, ...]) -> Scalar:
            if not columns:
                return literal(1, X.dtype)
            total: Scalar | None = None
            for n, column in enumerate(columns):
                rest = columns[:n] + columns[n + 1 :]
                entry = X[(*outer, row, column)]
                term = entry * minor(row + 1, rest) if rest else entry
                total = term if total is None else total - term if n % 2 else total + term
            assert total is not None
            return total

        return minor(0, tuple(range(order)))

    Y[:] = compute(Y.shape, element)
