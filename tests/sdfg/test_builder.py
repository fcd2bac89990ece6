"""Computations in the canonical form."""

from __future__ import annotations

import dace
import pytest
from dace.codegen import codegen
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, Computation, parameters, reduced_parameters, span
from daceml.sdfg.scalar import Scalar, cast, index_value, literal, read, reduce_over
from tests.support.golden import raises

I0, I1 = parameters(2)
K0, K1 = reduced_parameters(2)
N = dace.symbol("N")


def sdfg_with(computation: Computation, **arrays: tuple) -> dace.SDFG:
    sdfg = dace.SDFG("case")
    for name, shape in arrays.items():
        sdfg.add_array(name, shape, dace.float32)
    Builder(sdfg, sdfg.add_state()).emit(computation)
    sdfg.validate()
    return sdfg


def emit(value: Scalar, extents: tuple, **arrays: tuple) -> dace.SDFG:
    params = parameters(len(extents))
    return sdfg_with(
        Computation(label="c", target="y", index=params or (0,), params=params, extents=extents, value=value),
        **arrays,
    )


def only_state(sdfg: dace.SDFG) -> dace.SDFGState:
    (state,) = sdfg.states()
    return state


def edges(sdfg: dace.SDFG) -> list[str]:
    state = only_state(sdfg)
    return [f"{e.src} -> {e.dst}: {e.data}" for e in state.edges()]


def text(sdfg: dace.SDFG) -> str:
    return codegen.generate_code(sdfg, validate=False)[0].clean_code


def row_sum(extent=5) -> Scalar:
    return reduce_over("sum", (K0,), (extent,), read("x", dace.float32, (I0, K0), (4, extent)))


def test_elementwise_is_one_map_with_one_tasklet() -> None:
    sdfg = emit(read("x", dace.float32, (I1, I0 + 1), (5, 6)) + 1, (4, 5), x=(5, 6), y=(4, 5))
    state = only_state(sdfg)
    assert [type(n).__name__ for n in state.nodes()].count("Tasklet") == 1
    assert edges(sdfg) == [
        "x -> c[i0=0:4, i1=0:5]: x[0:5, 1:5]",
        "c[i0=0:4, i1=0:5] -> c: x[i1, i0 + 1]",
        "c -> c[i0=0:4, i1=0:5]: y[i0, i1]",
        "c[i0=0:4, i1=0:5] -> y: y[0:4, 0:5]",
    ]


def test_a_reduction_adds_up_in_a_register_without_atomics() -> None:
    sdfg = emit(row_sum(), (4,), x=(4, 5), y=(4,))
    generated = text(sdfg).split("__program_case_internal")[1]
    assert "double y_acc[1]" in generated
    assert "reduce_atomic" not in generated
    assert "new " not in generated.split("DACE_EXPORTED")[0]
    inner = [n for n in only_state(sdfg).nodes() if isinstance(n, nodes.MapEntry) and n.map.params == ["k0"]]
    assert inner[0].map.schedule == dace.ScheduleType.Sequential


def test_the_epilogue_of_a_reduction_is_in_its_final_tasklet() -> None:
    sdfg = emit(cast(row_sum() / 5, dace.float32) + 1, (4,), x=(4, 5), y=(4,))
    codes = [n.code.as_string for n in only_state(sdfg).nodes() if isinstance(n, nodes.Tasklet)]
    assert "_out = (dace.float32((_acc / dace.float64(5.0))) + dace.float32(1.0))" in codes


def test_a_maximum_keeps_nan_while_it_accumulates() -> None:
    value = reduce_over("max", (K0,), (5,), read("x", dace.float32, (I0, K0), (4, 5)))
    assert "nan_max" in text(emit(value, (4,), x=(4, 5), y=(4,)))


def test_rank_0_runs_once() -> None:
    sdfg = emit(literal(2, dace.float32), (), y=(1,))
    assert edges(sdfg)[-1] == "c[i0=0] -> y: y[0]"


def test_symbolic_sizes() -> None:
    sdfg = emit(read("x", dace.float32, (I0, 0), (N, 3)), (N,), x=(N, 3), y=(N,))
    assert edges(sdfg)[0] == "x -> c[i0=0:N]: x[0:N, 0]"


def test_an_empty_box_needs_no_map() -> None:
    assert edges(emit(literal(2, dace.float32), (0, 3), y=(0, 3))) == []


def test_one_array_read_twice_enters_once_with_the_union() -> None:
    value = read("x", dace.float32, (I0,), (9,)) + read("x", dace.float32, (I0 + 3,), (9,))
    sdfg = emit(value, (6,), x=(9,), y=(6,))
    assert edges(sdfg)[0].endswith("x[0:9]")


def test_a_segment_is_a_sequential_map_over_a_range_that_is_read() -> None:
    start, end = (read(name, dace.int64, (I0,), (3,)) for name in ("starts", "ends"))
    row = read("x", dace.float32, (start + index_value(K0),), (7,))
    total = cast(reduce_over("sum", (K0,), (end - start,), row), dace.float32)
    sdfg = emit(total, (3,), starts=(3,), ends=(3,), x=(7,), y=(3,))
    outer, inner = (n for n in only_state(sdfg).nodes() if isinstance(n, nodes.MapEntry))
    assert (str(outer.map.range), str(inner.map.range)) == ("0:3", "0:_length")
    assert "_length" in inner.in_connectors
    sdfg.validate()
    assert "k0 < _length" in text(sdfg)


def test_two_segments_in_one_reduction_are_an_error() -> None:
    length = read("starts", dace.int64, (I0,), (3,))
    body = read("x", dace.float32, (index_value(K0), index_value(K1)), (7, 7))
    total = cast(reduce_over("sum", (K0, K1), (length, length), body), dace.float32)
    with raises(ValueError, "one extent", "reduction"):
        emit(total, (3,), starts=(3,), x=(7, 7), y=(3,))


def test_two_computations_write_boxes_of_one_node() -> None:
    sdfg = dace.SDFG("case")
    sdfg.add_array("y", (4,), dace.float32)
    builder = Builder(sdfg, sdfg.add_state())
    for start in (0, 2):
        builder.emit(
            Computation(
                label="c",
                target="y",
                index=(I0 + start,),
                params=(I0,),
                extents=(2,),
                value=literal(1, dace.float32),
            )
        )
    sdfg.validate()
    assert len(only_state(sdfg).data_nodes()) == 1


def test_two_reductions_in_one_computation_are_an_error() -> None:
    with raises(ValueError, "2 reductions"):
        emit(cast(row_sum() + row_sum(), dace.float32), (4,), x=(4, 5), y=(4,))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [(I0, (0, 3)), (2 * I0 + I1 - 1, (-1, 9)), (7 - I0, (4, 7)), (N, (N, N)), (5, (5, 5)), (I0 * I1, None)],
)
def test_bounds_of_affine_indices(expression, expected) -> None:
    assert span(expression, {I0: 4, I1: 5}) == expected
