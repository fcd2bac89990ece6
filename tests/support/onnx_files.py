"""An ONNX file with a named dimension."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper


def save_sum(folder: Path, *, doc: str = "") -> Path:
    """y = a + gather(a, index); a: [N, 3] float32, index: [N] int64.

    Args:
        doc: of the Add, so that the model is one of its own in the cache.
    """
    nodes = [
        helper.make_node("Gather", ["a", "index"], ["rows"], axis=0),
        helper.make_node("Add", ["a", "rows"], ["y"], doc_string=doc),
    ]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 3]),
        helper.make_tensor_value_info("index", TensorProto.INT64, ["N"]),
    ]
    graph = helper.make_graph(
        nodes, "sum", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "sum.onnx")
    return folder / "sum.onnx"
