"""Scopes found by looking at one map only."""

from __future__ import annotations

import dace
import pytest
from dace import Memlet
from dace.sdfg import nodes

from daceml.sdfg.scopes import exit_of, nested_nodes, scope_nodes, top_maps


@pytest.fixture(scope="module")
def state() -> dace.SDFGState:
    """A map with a tasklet, a map, and a map in a map, each from x[i, :] to y[i, :]; and a map beside it."""
    sdfg = dace.SDFG("nests")
    for array in ("x", "y", "z"):
        sdfg.add_array(array, [8, 4], dace.float64)
    state = sdfg.add_state()
    x, y = state.add_read("x"), state.add_write("y")

    def add(around: list[tuple[nodes.MapEntry, nodes.MapExit]], label: str, place: str) -> None:
        tasklet = state.add_tasklet(label, {"a"}, {"b"}, "b = a")
        entries, exits = [pair[0] for pair in around], [pair[1] for pair in around][::-1]
        state.add_memlet_path(x, *entries, tasklet, dst_conn="a", memlet=Memlet(f"x[{place}]"))
        state.add_memlet_path(tasklet, *exits, y, src_conn="b", memlet=Memlet(f"y[{place}]"))

    outer = state.add_map("outer", {"i": "0:8"})
    add([outer], "alone", "i, 0")
    add([outer, state.add_map("inner", {"j": "1:2"})], "one_map", "i, j")
    add([outer, state.add_map("k", {"k": "0:1"}), state.add_map("m", {"m": "2:4"})], "two_maps", "i, k + m")
    ends = ({"a": Memlet("x[i, 0]")}, "b = a", {"b": Memlet("z[i, 0]")})
    state.add_mapped_tasklet("beside", {"i": "0:8"}, *ends, external_edges=True)
    sdfg.validate()
    return state


def test_what_stands_in_each_map_is_what_dace_says(state: dace.SDFGState):
    children = state.scope_children()
    outer, beside = top_maps(state)
    nested = nested_nodes(state, outer)
    assert sorted(entry.map.label for entry in nested) == ["inner", "k", "m", "outer"]
    assert list(nested_nodes(state, beside)) == [beside]
    for entry, inside in {**nested, **nested_nodes(state, beside)}.items():
        assert set(inside) == set(children[entry])
        assert len(inside) == len(children[entry])


def test_nodes_come_after_what_they_depend_on(state: dace.SDFGState):
    for entry in top_maps(state):
        order = {node: i for i, node in enumerate(scope_nodes(state, entry))}
        for inside in nested_nodes(state, entry).values():
            assert [order[n] for n in inside] == sorted(order[n] for n in inside)


def test_the_end_of_a_map_is_its_own(state: dace.SDFGState):
    entries = [n for n in state.nodes() if isinstance(n, nodes.MapEntry)]
    assert len(entries) == 5
    for entry in entries:
        assert exit_of(state, entry) is state.exit_node(entry)
