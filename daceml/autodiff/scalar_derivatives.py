"""Derivatives of scalar expressions, backwards: a cotangent for every element that an expression reads.

The partial derivatives of smooth functions come from their definitions by SymPy; those of all other
operations are one formula each, with torch's conventions where a derivative does not exist (|x|' = 0 at 0,
equal operands of a maximum share). Operations of `_FLAT` stop gradients: comparisons, roundings,
integers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import dace
import sympy

from daceml.errors import GradientError
from daceml.sdfg.scalar import FLOATS, Scalar, apply, cast, compute_type, literal
from daceml.sdfg.scalar_rewrite import nodes_of

_X, _Y = sympy.Symbol("x", real=True), sympy.Symbol("y", real=True)

_DEFINITIONS: dict[str, sympy.Expr] = {
    **{name: getattr(sympy, name)(_X) for name in ("exp", "log", "erf", "erfc", "sqrt", "sin", "cos", "tan")},
    **{name: getattr(sympy, name)(_X) for name in ("asin", "acos", "atan", "sinh", "cosh", "tanh")},
    **{name: getattr(sympy, name)(_X) for name in ("asinh", "acosh", "atanh")},
    "log1p": sympy.log(1 + _X),
    "expm1": sympy.exp(_X) - 1,
}


def partial_of(op: str) -> sympy.Expr:
    """The derivative of a smooth function of x, in x and in its result y.

    That of expm1 is exp(x): y + 1 has no digits left where y is almost -1.
    """
    definition = _DEFINITIONS[op]
    return sympy.diff(definition, _X).subs(definition, _Y)


Operands = tuple[Scalar, ...]
# (operands, result, cotangent) -> cotangents of the operands; None stops there
Partials = Callable[[Operands, Scalar, Scalar], tuple[Scalar | None, ...]]


def _zero(like: Scalar) -> Scalar:
    return literal(0.0, like.dtype)


def _smooth(op: str) -> Partials:
    # exact: exp(-x^2) stays above, one exponential that underflows where a quotient would overflow below
    numerator, denominator = sympy.fraction(sympy.together(partial_of(op)), exact=True)
    if denominator.is_number:
        numerator, denominator = numerator / denominator, sympy.Integer(1)

    def partials(args: Operands, y: Scalar, g: Scalar) -> tuple[Scalar]:
        values = {"x": args[0], "y": y}
        up = g if numerator == 1 else g * _scalar(numerator, values, g)
        return (up if denominator == 1 else up / _scalar(denominator, values, g),)

    return partials


def _scalar(expression: sympy.Basic, values: dict[str, Scalar], like: Scalar) -> Scalar:
    """A SymPy expression of x and y as operations of the table."""
    if isinstance(expression, sympy.Symbol):
        return values[expression.name]
    if expression.is_number:
        return literal(float(expression), like.dtype)  # pyright: ignore[reportArgumentType]
    if isinstance(expression, sympy.Mul):  # one literal for all constant factors
        constant, rest = expression.as_independent(*expression.free_symbols, as_Add=False)
        factors = [_scalar(f, values, like) for f in (constant, *sympy.Mul.make_args(rest)) if f != 1]
        return functools.reduce(lambda a, b: a * b, factors)
    args = [_scalar(a, values, like) for a in expression.args]
    match expression:
        case sympy.Add():
            return functools.reduce(lambda a, b: a + b, args)
        case sympy.Pow():
            return apply("pow", *args)
        case _:
            return apply(type(expression).__name__, *args)


def _pow(args: Operands, y: Scalar, g: Scalar) -> tuple[Scalar, Scalar]:
    a, b = args
    zero = _zero(g)
    if b.op == "literal":
        power = float(b.data)
        return (zero if power == 0 else g * power * apply("pow", a, power - 1)), zero
    base = apply("where", apply("eq", b, 0.0), zero, g * b * apply("pow", a, b - 1.0))
    flat = apply("and", apply("eq", a, 0.0), apply("ge", b, 0.0))
    return base, apply("where", flat, zero, g * y * apply("log", a))


def _extremum(loses: str) -> Partials:
    def partials(args: Operands, y: Scalar, g: Scalar) -> tuple[Scalar, Scalar]:
        a, b = args
        shared, zero = g * 0.5, _zero(g)
        equal = apply("eq", a, b)
        return (
            apply("where", equal, shared, apply("where", apply(loses, a, b), zero, g)),
            apply("where", equal, shared, apply("where", apply(loses, b, a), zero, g)),
        )

    return partials


def _quotient(args: Operands, y: Scalar, g: Scalar) -> tuple[Scalar, Scalar]:
    up = g / args[1]
    return up, -(up * y)


def _angle(args: Operands, y: Scalar, g: Scalar) -> tuple[Scalar, Scalar]:
    a, b = args
    squares = a * a + b * b
    share = apply("where", apply("eq", squares, 0.0), _zero(g), 1.0 / squares)
    return g * b * share, -g * a * share


_PARTIALS: dict[str, Partials] = {
    **{op: _smooth(op) for op in _DEFINITIONS},
    # that of the definition is NaN below -1, where torch's is not
    "acosh": lambda args, y, g: (g / apply("sqrt", args[0] * args[0] - 1.0),),
    "sigmoid": lambda args, y, g: (g * ((1.0 - y) * y),),
    "rectify": lambda args, y, g: (apply("where", apply("le", y, 0.0), _zero(g), g),),
    "abs": lambda args, y, g: (g * apply("sign", args[0]),),
    "neg": lambda args, y, g: (-g,),
    "add": lambda args, y, g: (g, g),
    "sub": lambda args, y, g: (g, -g),
    "mul": lambda args, y, g: (g * args[1], g * args[0]),
    "div": _quotient,
    "pow": _pow,
    "atan2": _angle,
    "nan_max": _extremum("lt"),
    "nan_min": _extremum("gt"),
    "max": _extremum("lt"),
    "min": _extremum("gt"),
    "where": lambda args, y, g: (
        None,
        apply("where", args[0], g, _zero(g)),
        apply("where", args[0], _zero(g), g),
    ),
    "floor_mod": lambda args, y, g: (g, -g * apply("floor", args[0] / args[1])),
    "trunc_mod": lambda args, y, g: (g, -g * apply("trunc", args[0] / args[1])),
}

# Constant between their jumps, or no number at all: a gradient ends here.
_FLAT = frozenset(
    [
        "without_gradient",
        "sign",
        "floor",
        "ceil",
        "trunc",
        "rint",
        "floor_div",
        "trunc_div",
        "isnan",
        "isinf",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "not",
    ]
)
_LEAVES = frozenset({"read", "gather", "reduce"})


@dataclass(frozen=True, kw_only=True)
class LeafCotangent:
    """What flows back to one element that an expression reads, or to a reduction in it."""

    leaf: Scalar
    cotangent: Scalar


def derivative(
    value: Scalar, cotangent: Scalar, wanted: Callable[[Scalar], bool], result: Scalar | None = None
) -> tuple[LeafCotangent, ...]:
    """Cotangents of the leaves of an expression, for the cotangent of its value.

    Args:
        value: a reduction in it is a leaf.
        wanted: which leaves matter; what leads to no such leaf is not differentiated.
        result: the value where it is in memory already: used instead of computing it again.
    Raises:
        GradientError: an operation on the way is differentiable and has no derivative here.
    """
    if value.dtype not in FLOATS:
        return ()
    order = nodes_of(value, enter=lambda node: node.op not in _LEAVES)
    matters: dict[int, bool] = {}
    for node in order:
        matters[id(node)] = (
            wanted(node)
            if node.op in _LEAVES
            else node.op not in _FLAT and any(matters[id(a)] and a.dtype in FLOATS for a in node.args)
        )
    if not matters[id(value)]:
        return ()
    root = value
    while root.op == "cast" and root.args[0].dtype in FLOATS:
        root = root.args[0]
    flowing: dict[int, Scalar] = {id(value): cast(cotangent, compute_type(value.dtype))}
    found: list[LeafCotangent] = []
    for node in reversed(order):
        g = flowing.pop(id(node), None)
        if g is None or not matters[id(node)]:
            continue
        if node.op in _LEAVES:
            found.append(LeafCotangent(leaf=node, cotangent=g))
            continue
        y = cast(result, g.dtype) if node is root and result is not None else node
        for argument, part in zip(node.args, _backwards(node, y, g), strict=True):
            if part is None or not matters[id(argument)] or argument.dtype not in FLOATS:
                continue
            part = cast(part, compute_type(argument.dtype))
            before = flowing.get(id(argument))
            flowing[id(argument)] = part if before is None else before + part
    return tuple(found)


def _backwards(node: Scalar, y: Scalar, g: Scalar) -> tuple[Scalar | None, ...]:
    if node.op == "cast":
        return (g if node.args[0].dtype in FLOATS else None,)
    partials = _PARTIALS.get(node.op)
    if partials is None:
        raise GradientError(
            f"the operation {node.op} has no derivative",
            why="it is neither in the table of partial derivatives nor constant between jumps",
            fix="add it to daceml/autodiff/scalar_derivatives.py, or give the operator a @vjp rule",
        )
    # A half value is computed in float32: so are its partial derivatives.
    args = tuple(cast(a, dace.float32) if a.dtype in (dace.float16, dace.bfloat16) else a for a in node.args)
    return partials(args, y, g)
