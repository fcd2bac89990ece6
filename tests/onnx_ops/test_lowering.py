"""From nodes to maps: choices, refusals, views, and what is left of the network."""

from __future__ import annotations

from pathlib import Path

import dace
import numpy as np
import pytest
from dace.codegen import codegen
from dace.data import View
from dace.sdfg import nodes

from daceml.errors import NoImplementationError
from daceml.onnx_ops.lowering import choose, lower
from daceml.onnx_ops.registry import implementations_of
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class
from daceml.sdfg.network import Network
from tests.onnx_ops.native.single_node import Case, Library, network_of, random
from tests.support.golden import golden, raises


def network_for(
    op: str, *inputs: np.ndarray, constants: tuple[int, ...] = (), outputs: int = 1, **attributes
) -> Network:
    case = Case(op=op, inputs=inputs, constants=constants, attributes=attributes, outputs=outputs)
    return network_of(case, "case", case.reference())


def only_node(network: Network) -> ONNXNode:
    (node,) = (n for n in network.state.nodes() if isinstance(n, ONNXNode))
    return node


def reshape_between() -> Network:
    """x [2, 6] -> Relu -> r -> Reshape -> s [3, 4] -> Exp -> y."""
    sdfg = dace.SDFG("between")
    state = sdfg.add_state("main")
    shapes = {"x": (2, 6), "r": (2, 6), "s": (3, 4), "y": (3, 4)}
    for name, shape in shapes.items():
        sdfg.add_array(name, shape, dace.float32, transient=name in "rs")
    sdfg.add_array("shape", (2,), dace.int64)
    access = {name: state.add_access(name) for name in (*shapes, "shape")}
    steps = (
        ("Relu", {"X": "x"}, {"Y": "r"}),
        ("Reshape", {"data": "r", "shape": "shape"}, {"reshaped": "s"}),
        ("Exp", {"input": "s"}, {"output": "y"}),
    )
    for op, ins, outs in steps:
        node = node_class(op)(inputs=ins, outputs=outs)
        state.add_node(node)
        for connector, name in ins.items():
            state.add_edge(
                access[name], None, node, connector, dace.Memlet.from_array(name, sdfg.arrays[name])
            )
        for connector, name in outs.items():
            state.add_edge(
                node, connector, access[name], None, dace.Memlet.from_array(name, sdfg.arrays[name])
            )
    return Network(sdfg=sdfg, inputs=("x",), outputs=("y",), constants={"shape": np.array([3, 4])})


def test_a_native_node_becomes_maps() -> None:
    network = network_for("Softmax", random(2, 3))
    report = lower(network, allowed=("native",))
    assert not any(isinstance(n, nodes.LibraryNode) for n in network.state.nodes())
    assert report.count("native") == 1
    assert report.nodes[0].chosen == "native:softmax"
    assert report.nodes[0].writes == ("y0", "softmax_y0_part_0", "softmax_y0_part_1")


@pytest.mark.parametrize(
    ("preferred", "chosen"),
    [
        ({}, "aten:cumsum"),
        ({"CumSum c": "native:triangle"}, "native:triangle"),
        ({"CumSum d": "native:triangle"}, "aten:cumsum"),  # another node
        ({"CumSum c": "native:unknown"}, "aten:cumsum"),
    ],
)
def test_what_a_network_prefers_comes_first(preferred: dict[str, str], chosen: str) -> None:
    network = network_for("CumSum", random(2, 3), np.array(1), constants=(1,))
    node = only_node(network)
    node.onnx_name = "c"
    network.preferred = preferred
    assert choose(node, network).implementation.title == chosen


def test_a_preferred_implementation_that_refuses_is_left_out() -> None:
    network = network_for("Gemm", random(2, 3).astype(np.int32), random(3, 4).astype(np.int32))
    node = only_node(network)
    network.preferred = {node.title: "aten:addmm"}
    choice = choose(node, network)
    assert choice.implementation.title == "native:gemm"
    assert [title for title, _ in choice.refusals] == ["aten:addmm"]


def test_choosing_changes_nothing() -> None:
    network = network_for("Softmax", random(2, 3))
    before = network.sdfg.to_json()["nodes"]
    choose(only_node(network), network, allowed=("native",))
    assert len(network.state.nodes()) == 3
    assert len(network.sdfg.to_json()["nodes"]) == len(before)


def test_lowering_is_deterministic() -> None:
    def text() -> str:
        network = network_for("LayerNormalization", random(2, 3), random(3), random(3))
        lower(network, allowed=("native",))
        return codegen.generate_code(network.sdfg, validate=False)[0].clean_code

    assert text() == text()


def test_a_reshape_between_operators_is_a_view(tmp_path: Path, header: Path) -> None:
    network = reshape_between()
    report = lower(network, allowed=("alias", "native"))
    network.sdfg.validate()
    assert {n.op_type: n.chosen for n in report.nodes}["Exp"] == "native:elementwise"
    assert [n.chosen for n in report.nodes if n.op_type == "Reshape"] == ["alias:reshape"]
    assert isinstance(network.sdfg.arrays["s"], View)
    # The shape was needed while choosing only.
    assert "shape" not in network.sdfg.arrays
    assert network.constants == {}
    x, y = random(2, 6), np.empty((3, 4), np.float32)
    Library([network.sdfg], tmp_path, header).run("between", {"x": x, "y": y}, {})
    np.testing.assert_allclose(y, np.exp(np.maximum(x, 0)).reshape(3, 4), rtol=1e-6)


def test_an_output_of_the_network_is_never_a_view() -> None:
    network = network_for("Reshape", random(2, 6), np.array([3, 4]), constants=(1,))
    choice = choose(only_node(network), network, allowed=("alias", "native"))
    assert choice.implementation.title == "native:reshape"
    assert choice.refusals == (("alias:reshape", golden()),)
    assert "output" in choice.refusals[0][1]


def test_a_node_without_implementation_names_every_refusal() -> None:
    network = network_for("Pad", random(2, 4), np.array([1, 0, 0, 1]))
    with raises(NoImplementationError, "Pad", "/case", "native:pad", "pads", "onnxruntime"):
        lower(network, allowed=("native",))
    assert only_node(network).implementation is None


def test_a_shape_that_is_data_is_refused() -> None:
    network = network_for("Tile", random(2, 3), np.array([1, 2]))
    with raises(NoImplementationError, "native:tile", "repeats"):
        lower(network, allowed=("native",))


def test_element_types_that_do_not_fit_are_refused() -> None:
    values = np.arange(3)
    case = Case(op="Softplus", inputs=[values.astype(np.float32)])
    network = network_of(case, "case", case.reference())
    network.sdfg.arrays["x0"].dtype = dace.int32
    with raises(NoImplementationError, "Softplus", "exp", "int32"):
        lower(network, allowed=("native",))


def test_a_node_that_has_an_implementation_is_left_alone() -> None:
    network = network_for("Relu", random(3))
    only_node(network).implementation = "onnxruntime"
    assert lower(network).nodes == ()
    assert only_node(network).implementation == "onnxruntime"


@pytest.mark.parametrize("op", ["Add", "Conv", "Softmax", "Reshape", "Gather"])
def test_every_kind_of_an_operator_takes_its_formals(op: str) -> None:
    schema = node_class(op).schema
    names = {f.connector for f in (*schema.inputs, *schema.outputs)}
    for implementation in implementations_of(op):
        if implementation.kind != "onnxruntime":
            assert set(implementation.formals) <= names
