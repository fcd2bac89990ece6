"""Products of matrices and general contractions: each gradient is a contraction of its own.

A gradient sums over what its operand does not have: batches it was repeated along, and the other operand's
free dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.contraction import einsum_terms
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import broadcast_index, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.sdfg.scalar import Index, Scalar, index_value, literal


@vjp("MatMul", wrt="A")
def matmul_vjp_a(dY: Tensor, B: Tensor, dA: Output) -> None:
    """dA = dY B^T, summed over the batches that A was repeated along."""
    dy, b = _matrices(dY, B, vector_left=dA.rank == 1)

    def term(batch: Sequence[Index], row: Index, k: Index, n: Index) -> Scalar:
        return dy[(*batch, row, n)] * b[(*broadcast_index(batch, b.shape[:-2], dy.shape[:-2]), k, n)]

    _assign(dA.with_unit(0) if dA.rank == 1 else dA, dy.shape[:-2], dy.shape[-1], term)


@vjp("MatMul", wrt="B")
def matmul_vjp_b(dY: Tensor, A: Tensor, dB: Output) -> None:
    """dB = A^T dY, summed over the batches that B was repeated along; those of A are rows then."""
    a = A.expand_dims(0) if A.rank == 1 else A
    dy = _result(dY, vector_left=A.rank == 1, vector_right=dB.rank == 1)

    def term(batch: Sequence[Index], k: Index, n: Index, row: Index) -> Scalar:
        return a[(*broadcast_index(batch, a.shape[:-2], dy.shape[:-2]), row, k)] * dy[(*batch, row, n)]

    _assign(dB.with_unit(1) if dB.rank == 1 else dB, dy.shape[:-2], dy.shape[-2], term)


def _matrices(dY: Tensor, B: Tensor, *, vector_left: bool) -> tuple[Tensor, Tensor]:
    dy = _result(dY, vector_left=vector_left, vector_right=B.rank == 1)
    return dy, B.expand_dims(1) if B.rank == 1 else B


def _result(dY: Tensor, *, vector_left: bool, vector_right: bool) -> Tensor:
    """The cotangent as matrices: a vector operand is a matrix of one row or column."""
    rows = dY.expand_dims(-1) if vector_right else dY
    return rows.expand_dims(rows.rank - 1) if vector_left else rows


def _assign(target: Output, batch: Sequence[Index], inner: Index, term: Callable[..., Scalar]) -> None:
    """`target[own batch, i, j] = sum of term(batch, i, j, k)` over k and the batches it does not have."""
    missing = len(batch) - (target.rank - 2)
    own = target.shape[:-2]
    summed = [d for d, s in enumerate(batch) if d < missing or (same(own[d - missing], 1) and not same(s, 1))]

    def element(*index: Index) -> Scalar:
        *outer, i, j = index

        def inside(*k: Index) -> Scalar:
            place = [0 if d < missing else outer[d - missing] for d in range(len(batch))]
            for d, value in zip(summed, k[:-1], strict=True):
                place[d] = value
            return term(place, i, j, k[-1])

        return sum_over((*(batch[d] for d in summed), inner), inside)

    target[:] = compute(target.shape, element)


@vjp("Gemm", wrt="A")
def gemm_vjp_a(
    dY: Tensor,
    B: Tensor,
    dA: Output,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> None:
    """dA' = alpha dY B'^T."""
    right = B.transpose() if transB else B

    def element(i: Index, j: Index) -> Scalar:
        m, k = (j, i) if transA else (i, j)
        return _scaled(sum_over((dY.shape[1],), lambda n: dY[m, n] * right[k, n]), alpha)

    dA[:] = compute(dA.shape, element)


@vjp("Gemm", wrt="B")
def gemm_vjp_b(
    dY: Tensor,
    A: Tensor,
    dB: Output,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> None:
    """dB' = alpha A'^T dY."""
    left = A.transpose() if transA else A

    def element(i: Index, j: Index) -> Scalar:
        k, n = (j, i) if transB else (i, j)
        return _scaled(sum_over((dY.shape[0],), lambda m: left[m, k] * dY[m, n]), alpha)

    dB[:] = compute(dB.shape, element)


@vjp("Gemm", wrt="C")
def gemm_vjp_c(
    dY: Tensor, dC: Output, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> None:
    """dC = beta dY, summed over what C was repeated along."""
    shape = (1,) * (2 - dC.rank) + dC.shape
    repeated = [d for d in range(2) if same(shape[d], 1) and not same(dY.shape[d], 1)]

    def element(*index: Index) -> Scalar:
        place = [*(0,) * (2 - dC.rank), *index]

        def term(*k: Index) -> Scalar:
            for d, value in zip(repeated, k, strict=True):
                place[d] = value
            return dY[tuple(place)]

        return _scaled(sum_over([dY.shape[d] for d in repeated], term), beta)

    dC[:] = compute(dC.shape, element)


def _scaled(value: Scalar, factor: float) -> Scalar:
    return value if factor == 1 else value * factor


@vjp("Einsum")
def einsum_vjp(
    dOutput: Tensor, Inputs: tuple[Tensor, ...], dInputs: tuple[Output | None, ...], *, equation: str
) -> None:
    """d of an operand: the contraction of the cotangent and the other operands to its labels."""
    terms, result = einsum_terms(equation, [t.rank for t in Inputs])
    for number, target in enumerate(dInputs):
        if target is not None:
            others = [(t, x) for n, (t, x) in enumerate(zip(terms, Inputs, strict=True)) if n != number]
            _contract(target, terms[number], [(result, dOutput), *others])


def _contract(target: Output, labels: str, factors: Sequence[tuple[str, Tensor]]) -> None:
    """`target[labels]` is the sum of products of factors over all labels that it does not have."""
    sizes: dict[str, Index] = {}
    for term, tensor in factors:
        for label, extent in zip(term, tensor.shape, strict=True):
            if label not in sizes or same(sizes[label], 1):
                sizes[label] = extent
    own = dict(zip(labels, target.shape, strict=True))
    summed = [x for x in sizes if x not in own or (same(own[x], 1) and not same(sizes[x], 1))]

    def element(*index: Index) -> Scalar:
        known = dict(zip(labels, index, strict=True))

        def term_product(*k: Index) -> Scalar:
            place = {**known, **dict(zip(summed, k, strict=True))}
            parts = [
                x[tuple(0 if same(s, 1) else place[a] for a, s in zip(term, x.shape, strict=True))]
                for term, x in factors
            ]
            value = parts[0]
            for part in parts[1:]:
                value = value * part
            return value

        total = sum_over([sizes[x] for x in summed], term_product)
        for label, i in zip(labels, index, strict=True):  # a label that comes twice is a diagonal
            if known[label] is not i:
                on = index_value(known[label]) == index_value(i)
                total = where(on, total, literal(0, total.dtype))
        return total

    target[:] = compute(target.shape, element)
