"""Tasklet code read back: what daceml prints comes back as it was, and people's code is understood."""

from __future__ import annotations

import ast
import math

import dace
import pytest
from dace import symbolic

from daceml.sdfg.scalar import OPERATIONS, Scalar, apply, cast, index_value, literal, read
from daceml.sdfg.tasklet_code import RESULT, Access, print_tasklet
from daceml.sdfg.tasklet_parser import UnreadableTasklet, parse_tasklet
from tests.support.golden import raises


def element(array: str, dtype: dace.typeclass = dace.float64):
    return lambda positions: read(array, dtype, positions or (0,), (4,) * max(len(positions), 1))


def parsed(code: str, **dtypes: dace.typeclass) -> dict[str, Scalar]:
    inputs = {name: element(name.upper(), dtype) for name, dtype in dtypes.items()}
    return parse_tasklet(ast.parse(code).body, inputs, {"i0": symbolic.symbol("i0")})


def text(value: Scalar) -> str:
    return print_tasklet(value).code


def roundtrip(value: Scalar) -> str:
    code = print_tasklet(value)

    def held(access: Access):
        return lambda positions: read(access.array, dace.float64, access.indices, (4,))

    inputs = {name: held(access) for name, access in code.reads.items()}
    found = parse_tasklet(ast.parse(code.code).body, inputs, {"i0": symbolic.symbol("i0")})
    return text(found[RESULT])


X, Y = (read(name, dace.float64, (0,), (4,)) for name in "XY")
BINARY = [
    n for n, o in OPERATIONS.items() if "{1}" in o.template and o.operands in ("any", "number", "float")
]
UNARY = [
    n
    for n, o in OPERATIONS.items()
    if "{1}" not in o.template and o.operands in ("number", "float") and "bits" not in n
]


@pytest.mark.parametrize("op", UNARY)
def test_every_unary_operation_comes_back(op: str) -> None:
    value = apply(op, X)
    assert roundtrip(cast(value, dace.float64)) == text(cast(value, dace.float64))


@pytest.mark.parametrize("op", [op for op in BINARY if op != "where"])
def test_every_binary_operation_comes_back(op: str) -> None:
    value = cast(apply(op, X, Y + 1.5), dace.float64)
    assert roundtrip(value) == text(value)


def test_conditions_shared_values_and_indices_come_back() -> None:
    shared = apply("exp", X) + Y
    value = apply(
        "where", apply("and", apply("lt", X, Y), apply("ge", X, -math.inf)), shared * shared, shared
    )
    value = value + cast(index_value(symbolic.symbol("i0") * 3 + 1), dace.float64)
    assert roundtrip(value) == text(value)


def test_code_of_people() -> None:
    values = parsed(
        "t = math.exp(a) * 2\nb = -t if a > 1 else numpy.tanh(t) ** 2\nc = a // 3", a=dace.float64
    )
    exponential = apply("exp", element("A")(())) * 2.0
    tanh = apply("tanh", exponential)
    assert text(values["b"]) == text(
        apply("where", apply("gt", element("A")(()), 1.0), -exponential, tanh * tanh)
    )
    assert text(values["c"]) == text(apply("floor_div", element("A")(()), 3.0))


def test_both_ways_of_an_if() -> None:
    values = parsed("if a > 0:\n  b = a\nelse:\n  b = 0.0", a=dace.float32)
    a = element("A", dace.float32)(())
    # a number with a point is a double in C++, a whole one takes its neighbour's type
    wide, none = cast(a, dace.float64), literal(0.0, dace.float64)
    assert text(values["b"]) == text(apply("where", apply("gt", a, 0), wide, none))


def test_sizes_that_are_rounded_quotients_are_numbers():
    (value,) = parsed("y = x / dace.float32(int_floor(i0 + 1, 2) * Max(i0, 1))", x=dace.float32).values()
    assert value.dtype == dace.float32
    assert "int_floor" in text(value) and "Max" in text(value)


def test_integers_are_divided_as_numbers_and_positions_are_integers() -> None:
    values = parsed("b = n / 2\nc = a[n, i0]", n=dace.int32, a=dace.float64)
    assert values["b"].dtype == dace.float64
    assert values["c"].op == "gather"
    assert values["c"].args[0].dtype == dace.int64


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("for k in range(3):\n  b = k", ["statement", "for k in range(3):"]),
        ("b = foo(a)", ["function 'foo'"]),
        ("b = unknown", ["name 'unknown'"]),
        ("if a > 0:\n  b = a", ["['b']", "one way"]),
        ("b[0] = a", ["statement 'b[0] = a'"]),
    ],
)
def test_what_has_no_scalar_form_says_why(code: str, facts: list[str]) -> None:
    with raises(UnreadableTasklet, *facts):
        parsed(code, a=dace.float64)


def test_positions_that_are_data_are_names():
    # in brackets dace makes ceil(x - 0.5) an expression of integers: x + int_ceil(0.5, -1)
    place = apply("ceil", read("P", dace.float32, (0,), (4,)) - literal(0.5, dace.float32))
    value = Scalar("gather", dace.float32, (cast(place, dace.int64),), ("X", (None,), (9,)))
    assert text(value).splitlines() == [
        "_t0 = dace.int64(whole_int64(ceil(_a1 - dace.float32(0.5))))",
        "_out = _a0[_t0]",
    ]
