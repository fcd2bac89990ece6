"""The shape of a recurrence: steps in one loop, in lanes that run beside each other."""

from __future__ import annotations

import dace
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, parameters, reduced_parameters
from daceml.sdfg.recurrence import Recurrence, emit_recurrence
from daceml.sdfg.scalar import Index, Scalar, literal, read, reduce_over
from daceml.sdfg.scatter import Loop
from tests.support.golden import raises

LANE = parameters(1)[0]
STEP, UNIT, TERM = reduced_parameters(3)


def state_at(step: Index, unit: Index) -> Scalar:
    return read("S", dace.float32, (LANE, step, unit), (3, 6, 4))


def recurrence(*, steps: int = 5, extent: Index | Scalar = 4) -> Recurrence:
    """S[lane, t + 1, j] = sum_k S[lane, t, k], from ones."""
    total = reduce_over("sum", [TERM], [extent], state_at(STEP, TERM))
    return Recurrence(
        label="steps",
        target="S",
        params=(LANE,),
        extents=(3,),
        start=Loop(params=(STEP,), extents=(4,), index=(LANE, 0, STEP), value=literal(1.0, dace.float32)),
        step=STEP,
        steps=steps,
        loops=(Loop(params=(UNIT,), extents=(4,), index=(LANE, STEP + 1, UNIT), value=total),),
    )


def emitted(record: Recurrence) -> tuple[dace.SDFGState, nodes.MapEntry | None]:
    sdfg = dace.SDFG("recurrence")
    state = sdfg.add_state()
    sdfg.add_array("S", [3, 6, 4], dace.float32)
    entry = emit_recurrence(Builder(sdfg, state), record)
    sdfg.validate()
    return state, entry


def test_lanes_steps_units_and_terms_are_nested() -> None:
    state, entry = emitted(recurrence())
    assert entry is not None
    scopes = state.scope_dict()
    sums = next(n for n in state.nodes() if isinstance(n, nodes.MapEntry) and n.label.endswith("_reduce"))
    nest: list[str] = []
    around: nodes.MapEntry | None = sums
    while around is not None:
        nest.append(str(around.map.range))
        around = scopes[around]  # pyright: ignore[reportAssignmentType]
    assert nest == ["0:4", "0:4", "0:5", "0:3"]
    accumulated = {e.data.data for e in state.edges() if e.data.wcr}
    assert accumulated == {"S_acc"}, "only the register adds up"


def test_no_steps_need_no_scope() -> None:
    assert emitted(recurrence(steps=0))[1] is None


def test_a_sum_whose_length_is_data_is_an_error() -> None:
    with raises(ValueError, "extent", "reduction", "step"):
        emitted(recurrence(extent=read("S", dace.int64, (0, 0, 0), (3, 6, 4))))
