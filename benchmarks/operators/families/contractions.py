"""Sums of products."""

from __future__ import annotations

from benchmarks.operators.draws import Chance, Draw, draws


@draws("MatMul")
def matmul(c: Chance, op: str) -> Draw:
    dtype = c.of(("float32", "float32", "float64", "int32"))
    batch = c.shape(0, 2, empty=False)
    m, k, n = c.size(), c.size(), c.size()
    left = (k,) if c.one_in(6) else (*(c.broadcast(batch)), m, k)
    right = (k,) if c.one_in(6) else (*batch, k, n)
    return Draw(op_type=op, inputs=[c.values(left, dtype), c.values(right, dtype)], terms=max(k, 1))


@draws("Gemm")
def gemm(c: Chance, op: str) -> Draw:
    dtype = c.of(("float32", "float64"))
    m, k, n = c.size(), c.size(empty=False), c.size()
    flip_a, flip_b = c.between(0, 1), c.between(0, 1)
    bias = None if c.one_in(3) else c.values(c.broadcast((m, n)), dtype)
    attributes = {"transA": flip_a, "transB": flip_b, "alpha": c.of((1.0, 0.5)), "beta": c.of((1.0, 2.0))}
    a, b = c.values((k, m) if flip_a else (m, k), dtype), c.values((n, k) if flip_b else (k, n), dtype)
    return Draw(op_type=op, inputs=[a, b, bias], attributes=attributes, terms=k)


_EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "...ij,...jk->...ik", "ij->ji", "ii->i", "ii",
    "ij->", "i,j->ij", "bhqd,bhkd->bhqk", "ij,ij->i", "...ij->...ji",
    "ijk,kl,lm->im", "ij,jk", "iij->j",
)  # fmt: skip


@draws("Einsum")
def einsum(c: Chance, op: str) -> Draw:
    equation = c.of(_EQUATIONS)
    sizes = {letter: c.size(empty=False) for letter in "abcdefghijklmnopqrstuvwxyz"}
    ellipsis = c.shape(0, 2, empty=False)
    dtype = c.of(("float32", "float64"))
    inputs = []
    for term in equation.split("->")[0].split(","):
        letters = term.replace("...", "")
        leading = ellipsis if "..." in term else ()
        inputs.append(c.values((*leading, *(sizes[letter] for letter in letters)), dtype))
    return Draw(op_type=op, inputs=inputs, attributes={"equation": equation}, terms=100)
