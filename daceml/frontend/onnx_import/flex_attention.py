"""FlexAttention, as the nodes that the standard's own definition writes it with, modifiers inlined."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from daceml.frontend.onnx_import.inlining import Graph

_DOMAIN = "ai.onnx.preview"


def flex_attention(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes of the definition for these operands; None where their types are not declared, or do not fit.

    Source: ai.onnx.preview.FlexAttention-1, its context-dependent function.
    """
    kinds = [graph.types.get(name) for name in node.input]
    if any(kind is None for kind in kinds):
        return None
    schema: Any = onnx.defs.get_schema("FlexAttention", 1, _DOMAIN)  # its stubs lack the call below
    types = [kind.SerializeToString() for kind in kinds if kind is not None]
    written = schema.get_context_dependent_function(node.SerializeToString(), types)
    definition = onnx.FunctionProto.FromString(written)
    body = onnx.GraphProto(node=definition.node)
    body.output.extend(onnx.ValueInfoProto(name=name) for name in definition.output)
    nodes, results = graph.body(body, dict(zip(definition.input, node.input, strict=True)))
    return [*nodes, helper.make_node("Identity", results, node.output)]
