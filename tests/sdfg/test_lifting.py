"""Scopes read back: what the builder writes comes back as it was, and people's maps are understood."""

from __future__ import annotations

import dace
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, Computation, parameters, reduced_parameters
from daceml.sdfg.lifting import NotLiftable, Statement, lift
from daceml.sdfg.scalar import Scalar, apply, literal, read, reduce_over
from daceml.sdfg.tasklet_code import find_reductions, print_tasklet
from tests.support.golden import raises

N = dace.symbol("N")
I0, I1 = parameters(2)
K0 = reduced_parameters(1)[0]


def emitted(value: Scalar, shape: tuple[int, ...] = (4, 6)) -> Statement:
    """`Y[i0, i1] = value` written into an SDFG and read back."""
    sdfg = dace.SDFG("test")
    for name in ("X", "Y"):
        sdfg.add_array(name, shape, dace.float64)
    state = sdfg.add_state()
    index = parameters(len(shape))
    Builder(sdfg, state).emit(
        Computation(label="test", target="Y", index=index, params=index, extents=shape, value=value)
    )
    (entry,) = (n for n in state.nodes() if isinstance(n, nodes.MapEntry) and state.entry_node(n) is None)
    (statement,) = lift(sdfg, state, entry)
    return statement


def test_an_elementwise_computation_comes_back() -> None:
    x = read("X", dace.float64, (I0, I1), (4, 6))
    found = emitted(apply("exp", x) * x + 1.0)
    assert [str(p) for p in found.index] == ["p0", "p1"]
    assert found.extents == (4, 6)
    assert print_tasklet(found.value).code == print_tasklet(apply("exp", x) * x + 1.0).code


def test_a_reduction_comes_back_with_its_final_step() -> None:
    body = read("X", dace.float64, (I0, K0), (4, 6))
    found = emitted(apply("sqrt", reduce_over("sum", [K0], [6], body * body)))
    (reduction,) = find_reductions(found.value)
    assert found.value.op == "sqrt"
    assert reduction.data.operator == "sum"
    assert reduction.data.extents == (6,)
    assert [str(i) for i in reduction.args[0].args[0].data[1]] == ["p0", "q0"]


def test_a_position_that_is_data_comes_back_as_a_gather() -> None:
    position = read("X", dace.float64, (I0, I1), (4, 6)).astype(dace.int64)
    found = emitted(read("X", dace.float64, (position, I1), (4, 6)))
    assert found.value.op == "gather"
    assert found.value.data[1][0] is None


def statements(program: dace.SDFG) -> list[Statement]:
    return [
        statement
        for state in program.states()
        for entry in state.nodes()
        if isinstance(entry, nodes.MapEntry) and state.entry_node(entry) is None
        for statement in lift(program, state, entry)
    ]


def test_a_map_of_people_with_offsets_and_steps() -> None:
    @dace.program
    def shift(a: dace.float64[20], b: dace.float64[20]):
        for i in dace.map[2:18:3]:
            b[i] = a[i - 2] * 2

    (found,) = statements(shift.to_sdfg(simplify=True))
    assert found.extents == (6,)
    assert str(found.index[0]) == "3*p0 + 2"
    (leaf,) = (a for a in found.value.args if a.op == "read")
    assert str(leaf.data[1][0]) == "3*p0"


def test_a_sum_into_an_array_resolves_conflicts() -> None:
    sdfg = dace.SDFG("rows")
    sdfg.add_array("a", [N, 5], dace.float64)
    sdfg.add_array("b", [N], dace.float64)
    sdfg.add_state().add_mapped_tasklet(
        "rows", {"i": "0:N", "j": "0:5"}, {"x": dace.Memlet("a[i, j]")}, "y = x * x",
        {"y": dace.Memlet("b[i]", wcr="lambda p, q: p + q")}, external_edges=True,
    )  # fmt: skip
    (found,) = statements(sdfg)
    assert found.resolves == "sum"
    assert str(found.extents[0]) == "N"


def test_what_is_no_computation_says_why() -> None:
    sdfg = dace.SDFG("native_code")
    sdfg.add_array("a", [4], dace.float64)
    state = sdfg.add_state()
    _, entry, _ = state.add_mapped_tasklet(
        "copy", {"i": "0:4"}, {"x": dace.Memlet("a[i]")}, "y = x;", {"y": dace.Memlet("a[i]")},
        language=dace.Language.CPP, external_edges=True,
    )  # fmt: skip
    with raises(NotLiftable, "tasklet copy", "CPP"):
        lift(sdfg, state, entry)


def test_an_extreme_value_as_a_literal() -> None:
    found = emitted(
        apply("max", read("X", dace.float64, (I0, I1), (4, 6)), literal(float("-inf"), dace.float64))
    )
    assert found.value.args[1].data == float("-inf")
