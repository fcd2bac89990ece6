"""Algebraic simplification of what a kernel computes: rules that fusion brings within reach of each other.

A rule replaces a value by one that is cheaper and as accurate, for every argument: its docstring says on
which range it is finite and how large its error is. The values around it stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from daceml.sdfg.scalar import Scalar, apply, literal
from daceml.sdfg.scalar_rewrite import nodes_of, replace_parts

Rule = Callable[[Scalar], Scalar | None]


def simplified(value: Scalar) -> tuple[Scalar, tuple[str, ...]]:
    """The value after all rules, and the names of those that applied, one for each place."""
    applied: list[str] = []
    replaced: dict[int, Scalar] = {}
    for node in nodes_of(value):
        for rule in RULES:
            found = rule(node)
            if found is not None:
                replaced[id(node)] = found
                applied.append(rule.__name__)
                break
    return (replace_parts(value, replaced), tuple(applied)) if applied else (value, ())


def tanh_of_softplus(node: Scalar) -> Scalar | None:
    """tanh(log(1 + exp x)) = n / (n + d), with e = exp(-|x|):

    n = 1 + 2 e, d = 2 e^2 for x >= 0;  n = e (e + 2), d = 2 for x < 0. One exponential and one quotient in
    place of four special functions. e is at most 1 and n + d at least 1, so nothing overflows; at most 4
    roundings. The heart of Mish.
    """
    match node:
        case Scalar(op="tanh", args=(Scalar(op="add", args=(positive, rest)),)):
            x = _softplus_argument(positive, rest)
        case _:
            return None
    if x is None:
        return None
    e = apply("exp", apply("neg", apply("abs", x)))
    right = apply("ge", x, 0.0)
    numerator = apply("where", right, 1.0 + 2.0 * e, e * (e + 2.0))
    return numerator / (numerator + apply("where", right, 2.0 * (e * e), literal(2.0, e.dtype)))


def _softplus_argument(positive: Scalar, rest: Scalar) -> Scalar | None:
    """x of max(x, 0) + log(1 + exp(-|x|)); None where it is something else."""
    match positive, rest:
        case (
            Scalar(op="nan_max", args=(x, zero)),
            Scalar(
                op="log1p",
                args=(Scalar(op="exp", args=(Scalar(op="neg", args=(Scalar(op="abs", args=(again,)),)),)),),
            ),
        ) if zero.op == "literal" and zero.data == 0 and _equal(x, again):
            return x
        case _:
            return None


def _equal(one: Scalar, other: Scalar) -> bool:
    """Whether two values are computed alike."""
    if one is other:
        return True
    return (
        (one.op, one.dtype) == (other.op, other.dtype)
        and one.op != "reduce"
        and str(one.data) == str(other.data)
        and len(one.args) == len(other.args)
        and all(map(_equal, one.args, other.args))
    )


RULES: tuple[Rule, ...] = (tanh_of_softplus,)
