"""Static costs, counted by hand."""

from __future__ import annotations

from daceml.sdfg.network_costs import maps_cost
from daceml.transformations.local.map_fusion import fuse_maps
from tests.runtime.programs import elementwise


def test_an_elementwise_map_reads_and_writes_each_element_once():
    count, cost = maps_cost(elementwise(["_out = exp(_a) * dace.float32(2)"], (8, 32)))
    assert count == 1
    assert cost.unique_bytes == cost.total_bytes == 2 * 8 * 32 * 4
    assert (cost.flops, cost.special_functions) == (8 * 32, 8 * 32)


def test_fusion_saves_the_array_between():
    network = elementwise(["_out = exp(_a)", "_out = _a + dace.float32(1)", "_out = _a * _a"], (8, 32))
    _, before = maps_cost(network)
    fuse_maps(network)
    count, after = maps_cost(network)
    assert count == 1
    assert before.unique_bytes == 6 * 8 * 32 * 4
    assert after.unique_bytes == 2 * 8 * 32 * 4
    assert after.flops == before.flops


def test_symbolic_costs_take_values_later():
    import dace

    from daceml.sdfg.network import Network

    sdfg = dace.SDFG("network")
    sdfg.add_symbol("N", dace.int64)
    n = dace.symbol("N")
    state = sdfg.add_state()
    for name in ("x", "y"):
        sdfg.add_array(name, [n], dace.float64)
    state.add_mapped_tasklet(
        "m",
        {"i": "0:N"},
        {"a": dace.Memlet("x[i]")},
        "o = a + a",
        {"o": dace.Memlet("y[i]")},
        external_edges=True,
    )
    _, cost = maps_cost(Network(sdfg=sdfg, inputs=("x",), outputs=("y",)))
    assert cost.at({"N": 10}).unique_bytes == 160
    assert cost.at({"N": 10}).flops == 10


def test_a_triangle_of_iterations_counts_exactly():
    from tests.onnx_ops.aten.programs import lowered

    text = "g (float[3, 6] X) => (float[3, 6] Y) { A = Constant <value_int = 1> () Y = CumSum (X, A) }"
    _, cost = maps_cost(lowered(text, ("native",))[1].network)
    additions = 3 * (1 + 2 + 3 + 4 + 5 + 6)
    assert cost.flops >= additions
    assert cost.total_bytes == (additions + 3 * 6) * 4


def test_a_segment_counts_one_row():
    from tests.onnx_ops.aten.programs import lowered

    text = "g (float[T, 5] R, int64[3] O) => (float[3, 5] Y) { Y = daceml.SegmentSum (R, O) }"
    _, cost = maps_cost(lowered(text, ("native",))[1].network)
    assert cost.at({"T": 9}).flops > 0
