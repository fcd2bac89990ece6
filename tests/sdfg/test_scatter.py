"""The shape of a scatter: one map over lanes, two sequential ones inside, no conflict resolution."""

from __future__ import annotations

import dace
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, parameters, reduced_parameters
from daceml.sdfg.outline import Outliner
from daceml.sdfg.scalar import literal, read
from daceml.sdfg.scatter import Loop, Scatter, emit_scatter


def scatter(target: str, updates: int = 5, operator: str = "add") -> Scatter:
    """target[I[u], lane] += U[u, lane] on zeros."""
    (lane,), (k,) = parameters(1), reduced_parameters(1)
    return Scatter(
        label="scatter",
        target=target,
        params=(lane,),
        extents=(4,),
        start=Loop(params=(k,), extents=(9,), index=(k, lane), value=literal(0.0, dace.float32)),
        updates=Loop(
            params=(k,),
            extents=(updates,),
            index=(read("I", dace.int64, (k,), (5,)), lane),
            value=read("U", dace.float32, (k, lane), (5, 4)),
        ),
        operator=operator,  # pyright: ignore[reportArgumentType]
    )


def built(*scatters: Scatter) -> tuple[dace.SDFG, dace.SDFGState, list[nodes.MapEntry]]:
    sdfg = dace.SDFG("scatters")
    state = sdfg.add_state()
    sdfg.add_array("I", [5], dace.int64)
    sdfg.add_array("U", [5, 4], dace.float32)
    builder = Builder(sdfg, state)
    for s in scatters:
        sdfg.add_array(s.target, [9, 4], dace.float32)
        assert emit_scatter(builder, s) is not None
    sdfg.validate()
    scopes = state.scope_dict()
    return sdfg, state, [n for n in state.nodes() if isinstance(n, nodes.MapEntry) and scopes[n] is None]


def test_lanes_are_the_only_parallel_loop() -> None:
    _, state, entries = built(scatter("A"))
    (entry,) = entries
    assert str(entry.map.range) == "0:4"
    inner = [e.dst.map for e in state.out_edges(entry) if isinstance(e.dst, nodes.MapEntry)]
    assert {m.schedule for m in inner} == {dace.ScheduleType.Sequential}
    assert not any(e.data.wcr for e in state.edges())


def test_the_target_is_found_between_the_two_loops() -> None:
    _, state, _ = built(scatter("A"))
    scopes = state.scope_dict()
    (between,) = [n for n in state.data_nodes() if scopes[n] is not None]
    assert between.data == "A"
    assert isinstance(state.in_edges(between)[0].src, nodes.MapExit)
    assert isinstance(state.out_edges(between)[0].dst, nodes.MapEntry)


def test_without_updates_only_the_start_is_left() -> None:
    _, state, _ = built(scatter("A", updates=0))
    scopes = state.scope_dict()
    assert all(scopes[n] is None for n in state.data_nodes())


def test_equal_scatters_are_one_kernel() -> None:
    sdfg, state, entries = built(scatter("A"), scatter("B"), scatter("C", operator="none"))
    outliner = Outliner()
    calls = [outliner.outline(sdfg, state, entry) for entry in entries]
    assert calls[0].kernel is calls[1].kernel
    assert calls[0].kernel is not calls[2].kernel
    assert calls[0].writes == ("A",)
    assert "A" not in calls[0].reads, "what is in the target before is never read"
