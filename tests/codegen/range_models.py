"""An ONNX model whose steps have ranges."""

from __future__ import annotations

from onnx import TensorProto, helper

import daceml


def add() -> daceml.ONNXModel:
    """c = a + b, of two elements."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"])], "add", info[:2], info[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return daceml.ONNXModel(model, ranges=True)
