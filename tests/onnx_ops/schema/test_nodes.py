"""Node classes: made on demand, typed attributes, validation with reasons, storage in JSON."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dace
import numpy as np
import onnx
import pytest

from daceml.errors import InvalidNodeError, UnknownOperatorError
from daceml.onnx_ops.schema import nodes
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.schema import Formal, OperatorSchema, operator_names, since_versions
from tests.support.golden import raises

# Bound by its name in this module, as dace looks it up here when it loads a stored node.
Doubled = nodes.define_operator(
    OperatorSchema(
        op_type="Doubled",
        domain="daceml.test",
        inputs=(Formal(name="X", connector="X"),),
        outputs=(Formal(name="Y", connector="Y"),),
    ),
    module=__name__,
)

SAMPLE: dict[str, Any] = {
    "int": 3, "float": 0.1, "string": "é", "ints": [1, -2], "floats": [0.5, 2.0], "strings": ["a", "b"],
    "tensor": np.array([[1.5, np.inf]], dtype=np.float32),
}  # fmt: skip


def graph_with(node: ONNXNode, **arrays: Any) -> tuple[dace.SDFG, dace.SDFGState]:
    """The node in a state; arrays: connector -> dtype or (dtype, shape)."""
    sdfg = dace.SDFG("single")
    state = sdfg.add_state("network")
    state.add_node(node)
    for connector, dtype in arrays.items():
        sdfg.add_array("v_" + connector, (2, 2), dtype)
        memlet = dace.Memlet.from_array("v_" + connector, sdfg.arrays["v_" + connector])
        if connector in node.in_connectors:
            state.add_edge(state.add_read("v_" + connector), None, node, connector, memlet)
        else:
            state.add_edge(node, connector, state.add_write("v_" + connector), None, memlet)
    return sdfg, state


def filled(cls: type[ONNXNode]) -> ONNXNode:
    """A node with a value for every attribute that a node can hold."""
    kinds = {a.name: a.kind for a in cls.schema.attributes.values() if a.kind in SAMPLE}
    return cls(
        "n", onnx_name="/n", module_path="a.b", source="f.py:1", **{n: SAMPLE[k] for n, k in kinds.items()}
    )


def same_attributes(left: ONNXNode, right: ONNXNode) -> bool:
    if type(left) is not type(right):
        return False
    pairs = [
        (getattr(left, name), getattr(right, name)) for name in left.schema.attributes if hasattr(left, name)
    ]
    return all(np.array_equal(a, b) and type(a) is type(b) for a, b in pairs)


def test_classes_are_made_once_and_named_by_their_version():
    assert nodes.Conv is nodes.node_class("Conv") is nodes.Conv_22
    assert nodes.node_class("Conv", version=18) is nodes.Conv_11
    assert (nodes.Conv.op_type, nodes.Conv.domain, nodes.Conv_11.since_version) == ("Conv", "", 11)
    assert nodes.ai_onnx_ml__Scaler.domain == "ai.onnx.ml"


def test_names_without_operator_are_no_attributes():
    for name in ("Frobnicate", "Conv_5", "__wrapped__", "nothing__Conv_22"):
        assert not hasattr(nodes, name)
    with pytest.raises(UnknownOperatorError):
        nodes.node_class("Frobnicate")


def test_no_class_hides_a_serializer_of_dace():
    for op_type in ("Range", "Loop", "If", "Reduce", "Transpose", "Identity"):
        if op_type in operator_names():
            nodes.node_class(op_type)
    assert dace.serialize.get_serializer("Range") is dace.subsets.Range


def test_every_operator_survives_json():
    """One SDFG that holds the newest class of every operator, with all attributes set."""
    sdfg = dace.SDFG("everything")
    state = sdfg.add_state("network")
    made = [filled(nodes.node_class(op)) for op in operator_names() if not since_versions(op)[-1][1]]
    for node in made:
        state.add_node(node)
    (restored,) = dace.SDFG.from_json(sdfg.to_json()).states()
    assert len(made) > 190
    for before, after in zip(made, restored.nodes(), strict=True):
        assert same_attributes(before, after), before.op_type
        assert (after.onnx_name, after.module_path, after.source) == ("/n", "a.b", "f.py:1")


def test_copies_are_equal_and_independent():
    node = filled(nodes.Conv)
    twin = copy.deepcopy(node)
    assert same_attributes(node, twin)
    twin.strides[0] = 7
    assert node.strides == [1, -2]


def test_a_stored_sdfg_loads_in_a_fresh_process(tmp_path: Path):
    sdfg, state = graph_with(nodes.Relu_14("r", inputs=["X"], outputs=["Y"]), X=dace.float32, Y=dace.float32)
    state.add_node(nodes.BatchNormalization_9("old", momentum=0.75))
    state.add_node(nodes.ConstantOfShape(value=np.zeros(0, dtype=np.int32)))
    sdfg.save(str(tmp_path / "stored.sdfg"))
    script = (
        "import sys, dace, daceml.onnx_ops.schema.nodes\n"
        "loaded = dace.SDFG.from_file(sys.argv[1])\n"
        "for node, _ in loaded.all_nodes_recursive():\n"
        "    print(type(node).__name__, getattr(node, '_momentum', ''), getattr(node, '_value', ''))\n"
    )
    # dace itself warns of deprecation when it is imported.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(Path(nodes.__file__).parents[3])}
    done = subprocess.run(
        [*command, str(tmp_path / "stored.sdfg")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    for line in ("Relu_14", "BatchNormalization_9 0.75", "ConstantOfShape_25 []"):
        assert line in [" ".join(text.split()) for text in done.stdout.splitlines()]


def test_tensors_keep_type_shape_and_bits():
    import ml_dtypes

    for value in (
        np.array(3, dtype=np.int64),
        np.zeros((0, 2), dtype=np.float16),
        np.array([1.5, np.nan], dtype=ml_dtypes.bfloat16),
        np.array([1 + 2j], dtype=np.complex64),
        np.array([True]),
    ):
        sdfg = dace.SDFG("tensor")
        sdfg.add_state("network").add_node(nodes.ConstantOfShape(value=value))
        (state,) = dace.SDFG.from_json(sdfg.to_json()).states()
        (node,) = state.nodes()
        assert (node.value.dtype, node.value.shape) == (value.dtype, value.shape)
        assert node.value.tobytes() == value.tobytes()


def test_an_operator_of_another_domain_is_defined_where_it_is_described():
    assert nodes.node_class("Doubled", domain="daceml.test") is Doubled and nodes.is_defined(
        "Doubled", "daceml.test"
    )
    sdfg, _ = graph_with(Doubled(inputs=["X"], outputs=["Y"]), X=dace.float32, Y=dace.float32)
    assert sdfg.to_json()["nodes"][0]["nodes"][0]["classpath"] == f"{__name__}.Doubled"
    sdfg.validate()


def test_attribute_values_fill_in_the_defaults():
    assert nodes.Conv(strides=[2, 2]).attribute_values() == {
        "auto_pad": "NOTSET", "dilations": None, "group": 1, "kernel_shape": None, "pads": None,
        "strides": (2, 2),
    }  # fmt: skip
    assert nodes.Softmax().attribute_values() == {"axis": -1}


def test_attributes_of_the_wrong_name_or_kind_are_refused():
    with raises(InvalidNodeError, "Softmax-13", "'axes'", "axis", "head.soft (m.py:7)", "node s"):
        nodes.Softmax(axes=[1], onnx_name="s", module_path="head.soft", source="m.py:7")
    with raises(InvalidNodeError, "Conv", "strides", "ints"):
        nodes.Conv(strides=[1.5])
    with raises(InvalidNodeError, "Softmax", "axis", "int", "'last'"):
        nodes.Softmax(axis="last")
    assert nodes.LeakyRelu(alpha=1).alpha == 1.0


def test_a_body_is_refused():
    with raises(InvalidNodeError, "If", "then_branch"):
        nodes.If(then_branch=onnx.GraphProto())
    with raises(InvalidNodeError, "If", "else_branch"):
        nodes.If().attribute_values()


F32, F64, I64 = dace.float32, dace.float64, dace.int64


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> ONNXNode:
    return nodes.node_class(op_type)("a", inputs=inputs.split(), outputs=outputs.split(), **attributes)


BROKEN = [
    (node("Add", "A", "C"), {"A": F32, "C": F32}, ["Add-14", "'B'", "A"]),
    (node("Relu", "X", ""), {"X": F32}, ["Relu-14", "'Y'"]),
    (
        node("Add", "A B", "C"),
        {"A": F32, "B": F64, "C": F32},
        ["Add-14", "'A' is tensor(float)", "'B' is tensor(double)"],
    ),
    (
        node("Softmax", "input", "output"),
        {"input": I64, "output": I64},
        ["Softmax-13", "'input'", "tensor(int64)", "tensor(bfloat16)"],
    ),
    (
        node("Reshape", "data shape", "reshaped"),
        {"data": F32, "shape": F32, "reshaped": F32},
        ["Reshape-25", "'shape'", "tensor(float)", "tensor(int64)"],
    ),
    (
        node("Concat", "", "concat_result", axis=0),
        {"concat_result": F32},
        ["Concat", "'inputs'", "at least 1", "has 0"],
    ),
    (
        node("Concat", "inputs__0", "concat_result"),
        {"inputs__0": F32, "concat_result": F32},
        ["Concat", "'axis'"],
    ),
    (node("Relu", "X Z", "Y"), {"X": F32, "Y": F32}, ["Relu-14", "'Z'", "X"]),
    (node("Relu", "X", "Y"), {"Y": F32}, ["Relu-14", "'X'"]),
]


@pytest.mark.parametrize(("broken", "arrays", "facts"), BROKEN)
def test_validation_names_the_broken_rule(broken: ONNXNode, arrays: dict[str, Any], facts: list[str]):
    sdfg, state = graph_with(copy.deepcopy(broken), **arrays)
    with raises(InvalidNodeError, "node a", *facts) as caught:
        state.nodes()[0].validate(sdfg, state)
    assert caught.value.fix


def test_a_good_node_validates():
    sdfg, _ = graph_with(
        nodes.Where("w", inputs=["condition", "X", "Y"], outputs=["output"]),
        condition=dace.bool, X=F32, Y=F32, output=F32,
    )  # fmt: skip
    sdfg.validate()
