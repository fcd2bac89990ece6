"""One kernel over lists of arrays: its node shows what it reads and writes, and comes after all else."""

from __future__ import annotations

import dace

from daceml.codegen.list_calls import list_call_lines
from daceml.sdfg.access import add_access
from daceml.sdfg.builder import parameters
from daceml.sdfg.network_costs import list_cost
from daceml.sdfg.scalar import literal, read
from daceml.sdfg.tensor_lists import ELEMENTS, ListCall, Row, add_list_call, list_kernel

WIDTH = 2


def call(*rows: tuple[str, str, int]) -> ListCall:
    """x <- x + n[0] * y and y <- 2 x, both from what was there before."""
    (i,) = parameters(1)
    elements = dace.symbol(ELEMENTS, dace.int64)
    x, y = (read(name, dace.float64, (i,), (elements,)) for name in "xy")
    rate = read("numbers", dace.float64, (0,), (WIDTH,))
    results = [("x", x + rate * y), ("y", literal(2.0, dace.float64) * x)]
    kernel, columns = list_kernel([("x", dace.float64), ("y", dace.float64)], "numbers", WIDTH, results)
    listed = tuple(Row(arrays=(a, b), elements=n, number=k) for k, (a, b, n) in enumerate(rows))
    return ListCall(kernel=kernel, columns=columns, rows=listed, numbers="table", written=(0, 1))


def test_every_value_is_computed_before_any_is_written():
    (tasklet,) = [n for s in call(("a", "b", 4)).kernel.sdfg.states() for n in s.nodes() if _is_tasklet(n)]
    lines = tasklet.code.as_string.splitlines()
    assert [line.split(" = ")[0] for line in lines[-2:]] == ["_out0", "_out1"]
    assert len(tasklet.out_connectors) == 2
    # each element is read once, by a connector of its own
    assert len(tasklet.in_connectors) == 3


def test_the_kernel_does_not_depend_on_the_rows():
    one, other = call(("a", "b", 4)), call(("c", "d", 5000), ("e", "f", 1))
    assert one.kernel.name == other.kernel.name
    assert one.reads == ("a", "b", "table")
    assert other.writes == ("c", "d", "e", "f")
    assert list_cost(other).total_bytes > 1000 * list_cost(one).total_bytes


def test_the_node_has_an_edge_for_every_array_and_comes_last():
    sdfg = dace.SDFG("network")
    state = sdfg.add_state()
    for name, shape in {"a": [4], "b": [4], "table": [1, WIDTH], "other": [1]}.items():
        sdfg.add_array(name, shape, dace.float64)
    before = add_access(state, "other")
    after = add_list_call(state, "update", call(("a", "b", 4)), {})
    (node,) = {state.in_edges(n)[0].src for n in after.values()}
    assert sorted(after) == ["a", "b"]
    assert sorted(e.data.data for e in state.in_edges(node) if e.data.data) == ["a", "b", "table"]
    assert state.edges_between(before, node), "what has no reader is still done before"


def test_rows_are_cut_into_parts():
    sdfg = dace.SDFG("network")
    rows = [("a", "b", 4), ("c", "d", 0), ("e", "f", 10_000)]
    for first, second, count in rows:
        for name in (first, second):
            sdfg.add_array(name, [max(count, 1)], dace.float64)
    sdfg.add_array("table", [3, WIDTH], dace.float64)
    made = call(*rows)
    text = "\n".join(list_call_lines(made, ("a00", "a01", "a02", "s00"), str.upper, dict(sdfg.arrays)))
    assert "starts[] = {0, 1, 1, 4};" in text
    assert "{C, D}," in text
    assert "numbers + rows[t] * 2" in text


def _is_tasklet(node: object) -> bool:
    return isinstance(node, dace.nodes.Tasklet)
