"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    FLOATS,
    Value,
    cast,
    full,
    op,
    product,
    rank_of,
    sizes_of,
    typed,
)
from daceml.frontend.onnx_export.translations.precision import attributes_hold

_WIDE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


@translates("aten.linear.default")
def linear(input: Value, weight: Value, bias: Value | None = None) -> Value:
    """X: [..., K], W: [M, K] -> X W^T + b: [..., M], as one Gemm over flattened rows."""
    if rank_of(weight) == 1:  # one number for each row
        y = op.MatMul(input, weight)
        return y if bias is None else op.Add(typed(y, input, shape=sizes_of(input)[:-1]), bias)
    *rows, inner = sizes_of(input)
    outer = sizes_of(weight)[0]
    if len(rows) == 1:
        return op.Gemm(input, weight, bias, transB=1)
    symbolic = [row for row in rows if not isinstance(row, int)]
    if len(symbolic) > 1:
        # a reshape back would need the sizes at run time
        transposed = typed(op.Transpose(weight, perm=[1, 0]), weight, shape=(inner, outer))
        y = op.MatMul(input, transposed)
        return y if bias is None else op.Add(typed(y, input, shape=(*rows, outer)), bias)
    count = product(rows)
    flat = typed(
        op.Reshape(input, [count if isinstance(count, int) else -1, inner]), input, shape=(count, inner)
    )
    y = typed(op.Gemm(flat, weight, bias, transB=1), input, shape=(count, outer))
    return op.Reshape(y, [*(row if isinstance(row, int) else -1 for row in rows), outer])


@translates("aten.addmm.default")
def addmm(self: Value, mat1: Value, mat2: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    if beta == 0:
        # what is added may be NaN then
        return _product(mat1, mat2, alpha)
    if attributes_hold(mat1, alpha, beta):
        return op.Gemm(mat1, mat2, self, alpha=float(alpha), beta=float(beta))
    y = typed(_product(mat1, mat2, alpha), mat1, shape=(sizes_of(mat1)[0], sizes_of(mat2)[1]))
    return op.Add(typed(op.Mul(self, float(beta)), self), y)


def _product(first: Value, second: Value, alpha: float) -> Value:
    if attributes_hold(first, alpha):
        return op.Gemm(first, second, None, alpha=float(alpha))
    return op.Gemm(typed(op.Mul(first, float(alpha)), first), second, None)


@translates(
    "aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default"
)
def matmul(self: Value, other: Value) -> Value:
    return op.MatMul(self, other)


@translates("aten.baddbmm.default")
def baddbmm(self: Value, batch1: Value, batch2: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    shape = (*sizes_of(batch1)[:2], sizes_of(batch2)[2])
    y = typed(op.MatMul(batch1, batch2), batch1, shape=shape)
    return _added(self, y, beta, alpha)


@translates("aten.addmv.default")
def addmv(self: Value, mat: Value, vec: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    y = typed(op.MatMul(mat, vec), mat, shape=sizes_of(mat)[:1])
    return _added(self, y, beta, alpha)


@translates("aten.addbmm.default")
def addbmm(self: Value, batch1: Value, batch2: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    batch, rows, columns = (*sizes_of(batch1)[:2], sizes_of(batch2)[2])
    y = typed(op.MatMul(batch1, batch2), batch1, shape=(batch, rows, columns))
    return _added(self, typed(op.ReduceSum(y, [0], keepdims=0), y, shape=(rows, columns)), beta, alpha)


def _added(self: Value, y: Value, beta: float, alpha: float) -> Value:
    """beta self + alpha y; for beta = 0 the first may be NaN."""
    if alpha != 1:
        y = typed(op.Mul(y, alpha), y)
    if beta == 0:
        return op.Identity(y)
    return op.Add(typed(op.Mul(self, beta), self) if beta != 1 else self, y)


@translates("aten.t.default", "aten.numpy_T.default")
def transpose_matrix(self: Value) -> Value:
    return op.Transpose(self, perm=list(reversed(range(rank_of(self)))))


@translates("aten.mT.default", "aten.mH.default", "aten.adjoint.default")
def transpose_matrices(self: Value) -> Value:
    rank = rank_of(self)
    return op.Transpose(self, perm=[*range(rank - 2), rank - 1, rank - 2]) if rank else op.Identity(self)


@translates("aten.outer.default")
def outer(self: Value, vec2: Value) -> Value:
    (n,), (m,) = sizes_of(self), sizes_of(vec2)
    column = typed(op.Unsqueeze(self, [1]), self, shape=(n, 1))
    row = typed(op.Unsqueeze(vec2, [0]), vec2, shape=(1, m))
    return op.Mul(column, row)


@translates("aten.linalg_vector_norm.default")
def vector_norm(
    self: Value,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: ir.DataType | None = None,
) -> Value:
    if (ord <= 0 and ord != -math.inf) or dtype not in (None, -1) or self.dtype not in FLOATS:
        raise UntranslatableError(f"a norm of order {ord}")
    if not sizes_of(self):
        return op.Abs(self)
    if dim is None and keepdim:
        dim = list(range(len(sizes_of(self))))
    if dim is None:
        self, dim = typed(op.Reshape(self, [-1]), self, shape=(product(sizes_of(self)),)), [0]
    axes = [dim] if isinstance(dim, int) else list(dim)
    if ord in (1, 2) or all(sizes_of(self)[axis] == 1 for axis in axes):
        return (op.ReduceL1 if ord == 1 else op.ReduceL2)(self, axes, keepdims=int(keepdim))
    magnitudes = typed(op.Abs(self), self)
    if math.isinf(ord):
        return (op.ReduceMax if ord > 0 else op.ReduceMin)(magnitudes, axes, keepdims=int(keepdim))
    return _norm(magnitudes, float(ord), axes, keepdim)


def _norm(magnitudes: Value, order: float, axes: Sequence[int], keepdim: bool) -> Value:
    """(sum |x|^p)^(1/p); what is zero is kept from the powers, whose slope at zero may be infinite."""

    def power(value: Value, exponent: float) -> Value:
        zero = typed(op.Equal(value, 0.0), value, dtype=ir.DataType.BOOL)
        safe = typed(op.Where(zero, 1.0, value), value)
        exponents = full((), exponent, value.dtype or ir.DataType.FLOAT)  # a number would be float32
        return op.Where(zero, 0.0, typed(op.Pow(safe, exponents), value))

    wide = magnitudes if magnitudes.dtype in _WIDE else cast(magnitudes, ir.DataType.FLOAT)
    powers = typed(power(wide, order), wide)
    total = typed(op.ReduceSum(powers, axes, keepdims=int(keepdim)), dtype=wide.dtype)
    norm = typed(power(total, 1 / order), total)
    return op.Identity(norm) if wide is magnitudes else op.Cast(norm, to=magnitudes.dtype)
