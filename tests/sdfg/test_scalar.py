"""Scalar expressions as tasklet code: types, sharing, and what is refused."""

from __future__ import annotations

import dace
import numpy as np
import pytest

from daceml.sdfg.builder import parameters
from daceml.sdfg.scalar import (
    ElementTypeMismatch,
    Scalar,
    apply,
    cast,
    index_value,
    literal,
    read,
    reduce_over,
)
from daceml.sdfg.tasklet_code import find_reductions, print_tasklet
from tests.support.golden import raises

I0, I1 = parameters(2)


def x(dtype: dace.typeclass = dace.float32, index: int = 0) -> Scalar:
    return read("x", dtype, (I0, I1 + index), (4, 5))


def code(value: Scalar) -> str:
    return print_tasklet(value).code


def test_operators_and_ufuncs_make_expressions() -> None:
    assert code(np.exp(x() * 2.0) + 1) == "_out = exp(_a0 * dace.float32(2.0)) + dace.float32(1.0)"
    assert code(1 - x()) == "_out = dace.float32(1.0) - _a0"
    assert code(-(x() / 3)) == "_out = -(_a0 / dace.float32(3.0))"


def test_a_value_used_twice_is_a_statement() -> None:
    e = np.exp(x())
    assert code(e / (e + 1)) == "_t0 = exp(_a0)\n_out = _t0 / (_t0 + dace.float32(1.0))"


def test_equal_expressions_are_one_value() -> None:
    assert code(np.exp(x()) * np.exp(x())) == "_t0 = exp(_a0)\n_out = _t0 * _t0"


def test_reads_of_one_element_share_a_connector() -> None:
    printed = print_tasklet(x() * x() + x(index=1))
    assert printed.code == "_out = (_a0 * _a0) + _a1"
    assert [a.indices for a in printed.reads.values()] == [(I0, I1), (I0, I1 + 1)]


def test_long_expressions_are_cut_into_statements() -> None:
    value = x()
    for i in range(40):
        value = np.exp(value) + i
    assert max(map(len, code(value).splitlines())) < 130


def test_every_literal_has_the_type_of_its_neighbour() -> None:
    assert code(x(dace.float64) + 0.5) == "_out = _a0 + dace.float64(0.5)"
    assert code(x(dace.int32) + 2) == "_out = _a0 + dace.int32(2)"
    assert code(x() + np.float32(0.1)) == "_out = _a0 + dace.float32(0.1)"
    assert code(x() + -np.inf) == "_out = _a0 + (-dace.float32(inf))"


def test_half_precision_is_computed_in_float32() -> None:
    value = x(dace.float16) * 2
    assert value.dtype == dace.float32
    assert code(cast(value, dace.float16)) == "_out = dace.float16(dace.float32(_a0) * dace.float32(2.0))"


def test_half_constants_are_rounded_to_their_type() -> None:
    assert literal(0.1, dace.float16).data == float(np.float16(0.1))


def test_small_integers_wrap() -> None:
    assert code(x(dace.int8) + 1) == "_out = dace.int8(_a0 + dace.int8(1))"


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        (2, "_out = _a0 * _a0"),
        (3, "_out = (_a0 * _a0) * _a0"),
        (0.5, "_out = sqrt(_a0)"),
        (-1, "_out = dace.float32(1.0) / _a0"),
        (-0.5, "_out = dace.float32(1.0) / sqrt(_a0)"),
        (1.5, "_out = pow(_a0, dace.float32(1.5))"),
        (0, "_out = pow(_a0, dace.float32(0.0))"),
    ],
)
def test_powers(power: float, expected: str) -> None:
    assert code(x() ** power) == expected


def test_maximum_keeps_nan_for_floats_only() -> None:
    assert code(np.maximum(x(), 0)) == "_out = nan_max(_a0, dace.float32(0.0))"
    assert code(np.maximum(x(dace.int32), 0)) == "_out = max(_a0, dace.int32(0))"
    assert code(np.maximum(x(dace.bool_), False)) == "_out = _a0 or False"


def test_logic_of_booleans() -> None:
    assert (
        code((x() > 0) & ~(x() == 1))
        == "_out = (_a0 > dace.float32(0.0)) and (not (_a0 == dace.float32(1.0)))"
    )


def test_where_takes_the_type_of_its_values() -> None:
    value = apply("where", x(dace.int64) < 0, x(dace.int64) + 5, x(dace.int64))
    assert value.dtype == dace.int64
    assert code(value) == "_out = (_a0 + dace.int64(5)) if (_a0 < dace.int64(0)) else _a0"


def test_indices_are_data_when_asked() -> None:
    assert code(index_value(2 * I0 + 1)) == "_out = dace.int64((2*i0 + 1))"
    assert code(index_value(3)) == "_out = dace.int64(3)"


def test_a_gather_indexes_inside_the_code() -> None:
    row = read("indices", dace.int64, (I0,), (4,))
    printed = print_tasklet(read("table", dace.float32, (row, I1), (10, 5)))
    assert printed.code == "_out = _a0[_a1]"
    assert printed.reads["_a0"].indices == (None, I1)


def test_several_positions_beside_a_dimension_of_one_element_name_every_other_dimension() -> None:
    rows, columns = (read(name, dace.int64, (I0,), (4,)) for name in ("rows", "columns"))
    printed = print_tasklet(read("table", dace.float32, (I1, 0, rows, columns), (3, 1, 10, 5)))
    assert printed.code == "_out = _a0[i1, _a1, _a2]"
    assert printed.reads["_a0"].indices == (None, 0, None, None)


def test_a_reduction_is_a_connector_of_the_final_tasklet() -> None:
    total = reduce_over("sum", (I1,), (5,), x())
    assert total.dtype == dace.float64
    final = cast(total / 5, dace.float32)
    assert code(final) == "_out = dace.float32(_acc / dace.float64(5.0))"
    assert find_reductions(final) == [total]


def test_a_reduction_over_nothing_is_its_identity() -> None:
    assert code(reduce_over("sum", (I1,), (0,), x())) == "_out = dace.float64(0.0)"
    assert code(reduce_over("max", (I1,), (0,), x())) == "_out = (-dace.float32(inf))"


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: x() + x(dace.float64), ["add", "float32, float64"]),
        (lambda: np.exp(x(dace.int32)), ["exp", "float operands", "int32"]),
        (lambda: x(dace.int32) / 2, ["div", "float operands", "int32"]),
        (lambda: x(dace.int32) + 0.5, ["0.5", "int32"]),
        (lambda: ~x(), ["invert", "integer operands", "float32"]),
        (lambda: x() + "a", ["str"]),
    ],
)
def test_types_that_do_not_fit_are_refused(make, facts: list[str]) -> None:
    with raises(ElementTypeMismatch, *facts):
        make()
