"""ONNX Runtime as the implementation of last resort: any operator of the standard, one node at a time, no copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

    from daceml.onnx_ops.node import ONNXNode

_LOWEST_OPSET = 13


def refusal(dtypes: Sequence[str]) -> str | None:
    """Why ONNX Runtime cannot run a node here; None if it can."""
    from daceml.config import config

    if config().fallback == "none":
        return "disabled by DACEML_FALLBACK=none"
    if any("complex" in d for d in dtypes):
        return "complex numbers are outside ONNX Runtime"
    return None


def single_node_model(
    node: ONNXNode, inputs: dict[str, tuple[int, Sequence[Any]]], outputs: dict[str, tuple[int, Sequence[Any]]]
) -> onnx.ModelProto:
    """A model that holds one node.

    Args:
        node: attributes and operator.
        inputs, outputs: connector -> (ONNX element type, sizes; None for a symbolic one); connectors of variadic
            formals end in their index. The order is the node's.
    """
    from onnx import helper

    attributes = {k: v for k, v in node.attribute_values().items() if v is not None}
    onnx_node = helper.make_node(
        node.op_type,
        _actuals(node.schema.inputs, inputs),
        _actuals(node.schema.outputs, outputs),
        domain=node.domain,
        **attributes,
    )
    graph = helper.make_graph(
        [onnx_node],
        node.op_type,
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in outputs.items()],
    )
    opset = max(node.since_version, _LOWEST_OPSET) if not node.domain else node.since_version
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)], ir_version=10)


def _actuals(formals: Sequence[Any], present: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for formal in formals:
        if formal.option == "variadic":
            names += [n for n in present if n.startswith(formal.connector + "__")]
        else:
            names.append(formal.connector if formal.connector in present else "")
    while names and not names[-1]:
        names.pop()
    return names
