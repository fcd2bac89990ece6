"""Outlining: what makes two scopes the same kernel, and what does not."""

from __future__ import annotations

import copy
from collections.abc import Callable

import dace
import pytest
import torch
from dace.subsets import Range
from torch import nn

from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.errors import UnsupportedProgramError
from daceml.frontend.onnx_export.export import export_program
from daceml.sdfg.network import Network
from daceml.sdfg.outline import KernelCall, Outliner
from daceml.sdfg.scopes import top_maps
from tests.support.golden import raises
from tests.support.small_networks import elementwise


def lowered(function: Callable[[torch.Tensor], torch.Tensor]) -> Network:
    """The loops of a function of a matrix."""

    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    stages = Stages()
    return optimise(onnx_network(export_program(Module(), (torch.randn(5, 10),)), stages), stages).network


def shifted_in_place() -> Network:
    """`x[i + 2] = 2 x[i + 3]` for i in 0..4."""
    network = elementwise(["_out = _a * dace.float32(2)"], (8,))
    sdfg, state = network.sdfg, network.state
    (entry,) = top_maps(state)
    entry.map.range = Range([(0, 3, 1)])
    sdfg.arrays["x"] = copy.deepcopy(sdfg.arrays["x0"])
    inside, last = {"x0": "i0 + 3", "x1": "i0 + 2"}, {"x0": "3:7", "x1": "2:6"}
    for edge in state.edges():
        array = edge.data.data
        tasklet = isinstance(edge.src, dace.nodes.Tasklet) or isinstance(edge.dst, dace.nodes.Tasklet)
        edge.data = dace.Memlet(data="x", subset=(inside if tasklet else last)[array])
    for node in state.data_nodes():
        node.data = "x"
    return network


def calls(network: Network) -> list[KernelCall]:
    outliner = Outliner()
    scopes = network.state.scope_dict()
    entries = [n for n in network.state.nodes() if isinstance(n, dace.nodes.MapEntry) and scopes[n] is None]
    return [outliner.outline(network.sdfg, network.state, e) for e in entries]


def test_the_canonical_text_reads_as_the_loop():
    (call,) = calls(elementwise(["_out = _a * dace.float32(2)"], (8, 32)))
    assert call.kernel.text == "\n".join(
        [
            "arg a00 array float32 [8, 32] strides [32, 1] Default",
            "arg a01 array float32 [8, 32] strides [32, 1] Default",
            "0 map p0, p1 in 0:8, 0:32 Default collapse 1",
            "1 tasklet Python {_out = (_a * dace.float32(2))}",
            "2 exit of 0",
            "in 0.IN_0 a00[0:8, 0:32]",
            "0.OUT_0 -> 1._a a00[p0, p1]",
            "1._out -> 2.IN_1 a01[p0, p1]",
            "out 2.OUT_1 a01[0:8, 0:32]",
        ]
    )
    assert (call.arguments, call.reads, call.writes) == (("x0", "x1"), ("x0",), ("x1",))


def test_equal_scopes_on_other_arrays_are_one_kernel():
    twice = ["_out = _a * dace.float32(2)"] * 3
    found = calls(elementwise(twice))
    assert len({c.kernel.name for c in found}) == 1
    assert [c.arguments for c in found] == [("x0", "x1"), ("x1", "x2"), ("x2", "x3")]


def test_parts_of_an_array_are_one_kernel():
    found = [
        call
        for call in calls(lowered(lambda x: torch.cat([x[:, :3].sin(), x[:, 4:7].sin(), x[:, 7:10].sin()])))
        if "a00[0:5, 0:3]" in call.kernel.text
    ]
    assert len({call.kernel.name for call in found}) == 1
    # rows of 10 elements: a part begins at one of its columns; 5 rows of 3 elements of the result each
    assert [call.starts for call in found] == [(0, 0), (4, 15), (7, 30)]


def test_what_is_read_and_written_begins_at_the_least_index():
    (call,) = calls(shifted_in_place())
    assert call.arguments == ("x",)
    assert call.starts == (2,)
    assert "0.OUT_0 -> 1._a a00[p0 + 1]" in call.kernel.text
    assert "1._out -> 2.IN_1 a00[p0]" in call.kernel.text


@pytest.mark.parametrize(
    "other",
    [elementwise(["_out = _a * dace.float32(3)"]), elementwise(["_out = _a * dace.float32(2)"], (8, 33))],
)
def test_other_code_or_sizes_are_another_kernel(other: Network):
    (base,) = calls(elementwise(["_out = _a * dace.float32(2)"]))
    (different,) = calls(other)
    assert base.kernel.name != different.kernel.name


def test_scopes_that_do_not_change_are_outlined_once():
    network = elementwise(["_out = _a * dace.float32(2)"])
    (entry,) = top_maps(network.state)
    final, current = Outliner(final=True), Outliner()
    before = [o.outline(network.sdfg, network.state, entry) for o in (final, current)]
    tasklet = next(n for n in network.state.nodes() if isinstance(n, dace.nodes.Tasklet))
    tasklet.code = dace.properties.CodeBlock("_out = _a * dace.float32(3)")
    after = [o.outline(network.sdfg, network.state, entry) for o in (final, current)]
    assert before[0].kernel.text == before[1].kernel.text
    assert after[0] is before[0]
    assert after[1].kernel.text != before[1].kernel.text


def test_a_name_does_not_depend_on_the_process():
    (call,) = calls(elementwise(["_out = _a"]))
    assert call.kernel.name == calls(elementwise(["_out = _a"]))[0].kernel.name
    assert call.kernel.name.isidentifier()


def test_symbols_become_parameters():
    sdfg = dace.SDFG("network")
    n = dace.symbol("batch")
    sdfg.add_symbol("batch", dace.int64)
    state = sdfg.add_state()
    for name in ("x", "y"):
        sdfg.add_array(name, [n, 4], dace.float32)
    state.add_mapped_tasklet(
        "scale",
        {"i": "0:batch", "j": "0:4"},
        {"a": dace.Memlet("x[i, j]")},
        "o = a * batch",
        {"o": dace.Memlet("y[i, j]")},
        external_edges=True,
    )
    (call,) = calls(Network(sdfg=sdfg, inputs=("x",), outputs=("y",)))
    assert call.symbols == ("batch",)
    assert "batch" not in call.kernel.text
    assert list(call.kernel.sdfg.arglist()) == ["a00", "a01", "s00"]
    call.kernel.sdfg.validate()


def test_the_kernel_sdfg_is_valid_and_the_network_is_untouched():
    network = elementwise(["_out = _a", "_out = _a + 1"])
    before = network.sdfg.hash_sdfg()
    for call in calls(network):
        call.kernel.sdfg.validate()
    assert network.sdfg.hash_sdfg() == before


def test_a_node_that_no_kernel_can_hold_is_named():
    network = elementwise(["_out = _a"])
    inner = dace.SDFG("inner")
    inner.add_state()
    (entry,) = [n for n in network.state.nodes() if isinstance(n, dace.nodes.MapEntry)]
    nested = network.state.add_nested_sdfg(inner, {}, {})
    network.state.add_edge(entry, None, nested, None, dace.Memlet())
    network.state.add_edge(nested, None, network.state.exit_node(entry), None, dace.Memlet())
    with raises(UnsupportedProgramError, "kernel", "NestedSDFG"):
        calls(network)
