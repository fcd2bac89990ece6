"""The float64 form of an ONNX model, which verifications compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from daceml.errors import CallError
from daceml.verification.onnx_reference import in_float64, onnx_peers
from tests.support.golden import raises


def node(operator: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def model(nodes: list[onnx.NodeProto], *, element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    third = numpy_helper.from_array(np.array([1 / 3], dtype=np.float32), "third")
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", element, [2])],
        [helper.make_tensor_value_info("y", element, [2])],
        [third],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Mul", "x third", "y")],
        [node("Cast", "x", "z", to=TensorProto.FLOAT), node("Mul", "z third", "y")],
        [node("Constant", "", "c", value_float=0.1), node("Mul", "x c", "y")],
        [node("Constant", "", "c", value_floats=[0.1, 0.2]), node("Mul", "x c", "y")],
    ],
)
def test_the_reference_runs_in_float64_from_end_to_end(nodes: list[onnx.NodeProto]):
    eager, reference = onnx_peers(model(nodes))
    x = torch.tensor([1.0, 3.0])
    wide = reference([x.double()])
    assert wide.dtype is torch.float64 and eager([x]).dtype is torch.float32
    assert torch.equal(wide.float(), eager([x]))
    assert wide[1] != eager([x])[1].double(), (
        "three thirds and three tenths need more digits than float32 has"
    )


def test_the_model_itself_stays_as_it_is():
    original = model([node("Mul", "x third", "y")])
    text = original.SerializeToString()
    wide = in_float64(original)
    assert original.SerializeToString() == text
    assert wide.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    onnx.checker.check_model(wide, full_check=True)


def test_a_peer_that_cannot_run_says_so():
    broken = model([node("Reshape", "x third", "y")])
    with raises(CallError, "ONNX Runtime", "Reshape", exact=False):
        onnx_peers(broken)[0]([torch.ones(2)])
