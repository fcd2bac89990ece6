"""Operands of a node by formal parameter."""

from __future__ import annotations

import dace

from daceml.onnx_ops.schema import nodes
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.operands import Operands, operands


def operands_of(node: ONNXNode, reads: dict[str, str], writes: dict[str, str]) -> Operands:
    sdfg = dace.SDFG("single")
    state = sdfg.add_state("network")
    state.add_node(node)
    access = {}
    for name in {**dict.fromkeys(reads.values()), **dict.fromkeys(writes.values())}:
        sdfg.add_array(name, (4,), dace.float32)
        access[name] = state.add_access(name)
    for connector, name in reads.items():
        state.add_edge(access[name], None, node, connector, dace.Memlet(f"{name}[0:4]"))
    for connector, name in writes.items():
        state.add_edge(node, connector, access[name], None, dace.Memlet(f"{name}[0:4]"))
    return operands(node, state, sdfg)


def test_absent_optionals_are_none():
    found = operands_of(
        nodes.Clip(inputs=["input", "max"], outputs=["output"]), {"input": "x", "max": "hi"}, {"output": "y"}
    )
    assert found.inputs == {"input": "x", "min": None, "max": "hi"}
    assert found.outputs == {"output": "y"}
    assert set(found.in_edges) == {"input", "max"} and found.out_edges["output"].data.data == "y"


def test_actuals_of_a_variadic_formal_are_ordered_by_number():
    reads = {f"inputs__{i}": f"x{i}" for i in (10, 2, 0, 1, *range(3, 10))}
    found = operands_of(
        nodes.Concat(inputs=list(reads), outputs=["concat_result"], axis=0), reads, {"concat_result": "y"}
    )
    assert found.inputs["inputs"] == tuple(f"x{i}" for i in range(11))
    assert found.written_arrays() == ("y",)


def test_one_array_may_be_read_twice():
    found = operands_of(nodes.Mul(inputs=["A", "B"], outputs=["C"]), {"A": "x", "B": "x"}, {"C": "y"})
    assert found.inputs == {"A": "x", "B": "x"} and found.read_arrays() == ("x", "x")


def test_shared_formal_names_are_told_apart():
    node = nodes.BatchNormalization_9(inputs=["X", "scale", "B", "mean_in", "var_in"], outputs=["Y"])
    reads = {"X": "x", "scale": "s", "B": "b", "mean_in": "m", "var_in": "v"}
    found = operands_of(node, reads, {"Y": "y"})
    assert found.inputs["mean_in"] == "m" and found.outputs["mean_out"] is None
