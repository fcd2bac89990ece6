"""Products of matrices, contractions and attention."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.gradient_checks.draws import Draw, real, uses
from benchmarks.operators.draws import Chance


@uses("matmul")
def matmul(c: Chance, name: str) -> Draw:
    batch, n, k, m = c.shape(0, 2), c.size(), c.size(), c.size()
    match c.between(0, 4):
        case 0:
            a, b = (k,), (k,)
        case 1:
            a, b = (n, k), (k,)
        case 2:
            a, b = (k,), (*batch, k, m)
        case _:
            a, b = (*c.broadcast(batch), n, k), (*batch, k, m)
    return Draw(call=torch.matmul, tensors=[real(c, a), real(c, b)])


@uses("mm", "bmm", "mv", "dot", "outer", "addmm", "baddbmm", "addmv", "addbmm")
def products(c: Chance, name: str) -> Draw:
    b, n, k, m = (c.size() for _ in range(4))
    shapes = {
        "mm": [(n, k), (k, m)], "bmm": [(b, n, k), (b, k, m)], "mv": [(n, k), (k,)], "dot": [(k,), (k,)],
        "outer": [(n,), (m,)], "addmm": [c.of(((n, m), (m,), (1, m), ())), (n, k), (k, m)],
        "baddbmm": [(b, n, m), (b, n, k), (b, k, m)], "addmv": [(n,), (n, k), (k,)],
        "addbmm": [(n, m), (b, n, k), (b, k, m)],
    }  # fmt: skip
    attributes = {"alpha": c.of((1, 2, -0.5)), "beta": c.of((1, 0.5))} if "add" in name else {}
    return Draw(call=getattr(torch, name), tensors=[real(c, s) for s in shapes[name]], attributes=attributes)


_EQUATIONS = (
    "ij,jk->ik", "bij,bkj->bik", "ij->ji", "ij->i", "ij->", "ii->i", "ii->", "i,i->", "i,j->ij",
    "bhid,bhjd->bhij", "...ij,...jk->...ik", "ij,kj,kl->il", "i,ij,j->", "abc,cd->abd", "ijk,ikl,i->jl",
    "ij,ij->ij",
)  # fmt: skip


@uses("einsum")
def einsum(c: Chance, name: str) -> Draw:
    equation = c.of(_EQUATIONS)
    sizes = {letter: c.size() for letter in "abcdhijkl"}
    shapes = [
        tuple(sizes[letter] for letter in term.replace("...", "b"))
        for term in equation.partition("->")[0].split(",")
    ]
    call = lambda *x, equation: torch.einsum(equation, *x)  # noqa: E731
    return Draw(call=call, tensors=[real(c, s) for s in shapes], attributes={"equation": equation})


@uses("linear", "bilinear")
def linear(c: Chance, name: str) -> Draw:
    batch, n, k, m = c.shape(0, 2), c.size(empty=False), c.size(empty=False), c.size(empty=False)
    if name == "bilinear":
        shapes = [(*batch, n), (*batch, k), (m, n, k), (m,)]
        return Draw(call=functional.bilinear, tensors=[real(c, s) for s in shapes])
    return Draw(
        call=functional.linear, tensors=[real(c, s) for s in [(*batch, k), (m, k), (m,)][: c.of((2, 3))]]
    )


@uses("tensordot", "kron", "vander by cumprod", "cross")
def other_products(c: Chance, name: str) -> Draw:
    n, k, m, j = (c.size(empty=False) for _ in range(4))
    match name:
        case "tensordot":
            return Draw(
                call=torch.tensordot, tensors=[real(c, (n, k, m)), real(c, (k, m, j))], attributes={"dims": 2}
            )
        case "kron":
            return Draw(call=torch.kron, tensors=[real(c, (n, k)), real(c, (m, j))])
        case "cross":
            return Draw(
                call=torch.linalg.cross,
                tensors=[real(c, (n, 3)), real(c, (n, 3))],
                attributes={"dim": c.of((1, -1))},
            )
        case _:
            call = lambda x: x[:, None].expand(-1, 3).cumprod(1)  # noqa: E731
            return Draw(call=call, tensors=[real(c, (n,))])


@uses("scaled_dot_product_attention")
def attention(c: Chance, name: str) -> Draw:
    batch, n, m, d, e = c.shape(0, 2, empty=False), *(c.size(empty=False) for _ in range(4))
    q, k, v = real(c, (*batch, n, d)), real(c, (*batch, m, d)), real(c, (*batch, m, e))
    attributes = {"scale": c.of((None, 0.5)), "dropout_p": 0.0}
    call = functional.scaled_dot_product_attention
    match c.between(0, 3):
        case 0:
            return Draw(call=call, tensors=[q, k, v], attributes=attributes)
        case 1:
            return Draw(call=call, tensors=[q, k, v], attributes={**attributes, "is_causal": True})
        case 2:
            return Draw(call=call, tensors=[q, k, v, real(c, (n, m))], attributes=attributes)
        case _:
            mask = c.values((n, m), "bool")
            mask[:, 0] = True
            return Draw(call=call, tensors=[q, k, v, mask], attributes=attributes)
