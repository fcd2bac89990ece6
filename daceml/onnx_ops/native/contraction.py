"""Products of matrices and general contractions; float32 terms are added up in float64."""

from __future__ import annotations

import string
from collections.abc import Sequence

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import broadcast_index, broadcast_shapes, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar


def matrix_product(A: Tensor, B: Tensor, known: frozenset[str] = frozenset()) -> Tensor:
    """numpy's matmul of tensors of rank 2 and more: batch dimensions broadcast."""
    batch = broadcast_shapes([A.shape[:-2], B.shape[:-2]], known)

    def element(*index: Index) -> Scalar:
        *outer, m, n = index
        a, b = (broadcast_index(outer, t.shape[:-2], batch) for t in (A, B))
        return sum_over((A.shape[-1],), lambda k: A[(*a, m, k)] * B[(*b, k, n)])

    return compute((*batch, A.shape[-2], B.shape[-1]), element)


@implements("MatMul")
def matmul(A: Tensor, B: Tensor, Y: Output) -> None:
    if A.rank == 0 or B.rank == 0:
        raise Refused("an operand of rank 0")
    left, right = (A.expand_dims(0) if A.rank == 1 else A), (B.expand_dims(1) if B.rank == 1 else B)
    _refuse_inner(left.shape[-1], right.shape[-2])
    target = Y
    # A vector is a matrix of one row or column; the result does not have that dimension.
    if A.rank == 1:
        target = target.with_unit(Y.rank if B.rank == 1 else Y.rank - 1)
    if B.rank == 1:
        target = target.with_unit(target.rank)
    target[:] = matrix_product(left, right, Y.trace.known_sizes)


def _refuse_inner(a: Index, b: Index) -> None:
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise Refused(f"inner sizes {a} and {b} differ")


@implements("Gemm")
def gemm(
    A: Tensor,
    B: Tensor,
    C: Tensor | None,
    Y: Output,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> None:
    left = A.transpose() if transA else A
    right = B.transpose() if transB else B
    _refuse_inner(left.shape[1], right.shape[0])

    def element(m: Index, n: Index) -> Scalar:
        product = sum_over((left.shape[1],), lambda k: left[m, k] * right[k, n])
        product = product if alpha == 1 else product * alpha
        if C is None or beta == 0:
            return product
        bias = C.closed().at(broadcast_index((m, n), C.shape, Y.shape))
        return product + (bias if beta == 1 else bias * beta)

    Y[:] = compute((left.shape[0], right.shape[1]), element)


@implements("Einsum")
def einsum(Inputs: tuple[Tensor, ...], Output: Output, *, equation: str) -> None:
    terms, result = einsum_terms(equation, [t.rank for t in Inputs])
    sizes: dict[str, Index] = {}
    for term, tensor in zip(terms, Inputs, strict=True):
        for label, extent in zip(term, tensor.shape, strict=True):
            if label not in sizes or same(sizes[label], 1):
                sizes[label] = extent
    summed = [label for label in sizes if label not in result]

    def element(*index: Index) -> Scalar:
        def term_product(*k: Index) -> Scalar:
            position = {**dict(zip(result, index, strict=True)), **dict(zip(summed, k, strict=True))}
            factors = [
                tensor[
                    tuple(0 if same(s, 1) else position[x] for x, s in zip(term, tensor.shape, strict=True))
                ]
                for term, tensor in zip(terms, Inputs, strict=True)
            ]
            value = factors[0]
            for factor in factors[1:]:
                value = value * factor
            return value

        return sum_over([sizes[label] for label in summed], term_product)

    Output[:] = compute([sizes[label] for label in result], element)


def einsum_terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of every operand and of the result; `...` gets labels of its own, aligned from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refused(f"{equation!r} is for {len(terms)} operands, there are {len(ranks)}")
    free = [c for c in string.ascii_letters if c not in equation]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    longest = max((h for term, h in zip(terms, hidden, strict=True) if "..." in term), default=0)
    dots = "".join(free[:longest])
    terms = [
        t.replace("...", dots[longest - h :]) if "..." in t else t for t, h in zip(terms, hidden, strict=True)
    ]
    if any(len(t) != r for t, r in zip(terms, ranks, strict=True)):
        raise Refused(f"{equation!r} does not fit operands of rank {list(ranks)}")
    if arrow:
        return terms, right.replace("...", dots)
    letters = "".join(terms)
    return terms, dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots))
