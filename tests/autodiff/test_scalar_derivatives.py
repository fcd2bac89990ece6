"""Derivatives of scalar expressions against finite differences, with torch's conventions at kinks."""

from __future__ import annotations

import math
import operator

import dace
import pytest
import sympy
import torch

from daceml.autodiff.scalar_derivatives import derivative, partial_of
from daceml.errors import GradientError
from daceml.sdfg.scalar import OPERATIONS, Scalar, apply, bit_cast, cast, literal, read
from tests.support.golden import raises

X, Y = (read(name, dace.float64, (0,), (1,)) for name in "XY")
ONE = literal(1.0, dace.float64)


FUNCTIONS = {
    **{name: getattr(math, name) for name in ("exp", "log", "log1p", "expm1", "erf", "erfc", "sqrt")},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: getattr(math, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{name: getattr(operator, name) for name in ("abs", "neg", "add", "sub", "mul", "pow")},
    **{name: getattr(operator, name) for name in ("eq", "lt", "le", "gt", "ge")},
    **{name: getattr(math, name) for name in ("floor", "ceil", "trunc")},
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
    "div": operator.truediv,
    "rint": round,
    "sign": lambda a: (a > 0) - (a < 0),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "atan2": math.atan2,
    "nan_max": max,
    "nan_min": min,
    "floor_mod": operator.mod,
    "trunc_mod": math.fmod,
}


def evaluate(value: Scalar, **values: float) -> float:
    """The expression in Python's floats."""
    match value.op:
        case "read":
            return values[value.data[0]]
        case "literal":
            return value.data
        case "cast":
            return float(evaluate(value.args[0], **values))
        case "where":
            condition, yes, no = value.args
            return evaluate(yes if evaluate(condition, **values) else no, **values)
        case _:
            return FUNCTIONS[value.op](*(evaluate(a, **values) for a in value.args))


def gradient(value: Scalar, **values: float) -> dict[str, float]:
    found = derivative(value, ONE, lambda leaf: True)
    totals: dict[str, float] = dict.fromkeys(values, 0.0)
    for leaf in found:
        totals[leaf.leaf.data[0]] += evaluate(leaf.cotangent, **values)
    return totals


def difference(value: Scalar, name: str, **values: float) -> float:
    h = 1e-6
    up, down = (evaluate(value, **{**values, name: values[name] + s}) for s in (h, -h))
    return (up - down) / (2 * h)


# over no range of x, or constant between jumps
_ELSEWHERE = ("acosh", "sign", "floor", "ceil", "trunc", "rint")
UNARY = [n for n, o in OPERATIONS.items() if o.template == f"{n}({{0}})" and o.result == "same"]
UNARY = [n for n in UNARY if n in FUNCTIONS and n not in _ELSEWHERE]


@pytest.mark.parametrize("op", UNARY)
def test_a_function_of_one_operand(op: str) -> None:
    value = apply("mul", apply(op, X), X)
    for x in (0.3, 0.7):
        # second-order differences of step 1e-6 in float64: an error of 1e-9 or so
        assert gradient(value, X=x)["X"] == pytest.approx(difference(value, "X", X=x), rel=1e-7)


def test_acosh_above_one() -> None:
    value = apply("acosh", X)
    assert gradient(value, X=1.7)["X"] == pytest.approx(difference(value, "X", X=1.7), rel=1e-7)


@pytest.mark.parametrize(
    "op", ["add", "sub", "mul", "div", "pow", "atan2", "nan_max", "nan_min", "floor_mod", "trunc_mod"]
)
def test_a_function_of_two_operands(op: str) -> None:
    value = Scalar(op, dace.float64, (X, Y))
    points = [(1.3, 0.4), (0.4, 1.3)]
    points += [(-1.3, 0.4), (1.3, -0.4)] if op != "pow" else []
    for x, y in points:
        found = gradient(value, X=x, Y=y)
        for name in "XY":
            assert found[name] == pytest.approx(difference(value, name, X=x, Y=y), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    ("function", "expression"),
    [
        (torch.abs, apply("abs", X)),
        (lambda x: torch.maximum(x, x * 0), apply("max", X, X * 0.0)),
        (lambda x: x**2.0, apply("pow", X, 2.0)),
        (lambda x: x**0, apply("pow", X, literal(0.0, dace.float64))),
        (lambda x: x**1.5, apply("pow", X, 1.5)),
        (torch.sign, apply("sign", X) + 0.0 * X),
        (torch.floor, apply("floor", X) + 0.0 * X),
    ],
)
def test_conventions_at_zero_are_those_of_torch(function, expression: Scalar) -> None:
    x = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(function(x), x)
    assert gradient(expression, X=0.0)["X"] == float(expected)


def test_a_result_that_is_in_memory_is_read_instead_of_computed_again() -> None:
    held = read("T", dace.float64, (0,), (1,))
    (found,) = derivative(apply("tanh", X * 2.0), ONE, lambda leaf: True, held)
    assert evaluate(found.cotangent, T=0.5) == 2 * (1 - 0.25)


def test_integers_conditions_and_unwanted_leaves_stop_gradients() -> None:
    condition = apply("gt", X, 0.0)
    assert derivative(apply("where", condition, Y, -Y), ONE, lambda leaf: leaf.data[0] == "X") == ()
    assert derivative(cast(cast(X, dace.int64), dace.float64), ONE, lambda leaf: True) == ()
    (found,) = derivative(X * Y, ONE, lambda leaf: leaf.data[0] == "Y")
    assert found.leaf is Y


def test_every_formula_is_the_derivative_of_its_definition() -> None:
    x, y = sympy.Symbol("x", real=True), sympy.Symbol("y", real=True)
    for op in ("tanh", "exp", "sqrt", "erf", "erfc", "log", "asinh", "tan"):
        definition = getattr(sympy, op)(x)
        assert sympy.simplify(partial_of(op).subs(y, definition) - sympy.diff(definition, x)) == 0


def test_an_operation_without_derivative_says_so() -> None:
    with raises(GradientError, "bits_float64", "derivative", "@vjp"):
        derivative(bit_cast(X, dace.float64), ONE, lambda leaf: True)
