"""What a pass says about an operator that it left as it was."""

from __future__ import annotations

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.passes import Refusal
from daceml.sdfg.sizes import Size
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.replacement import Value


def refused_node(node: ONNXNode, reason: str, size_bytes: Size = 0) -> Refusal:
    """A refusal of an operator, under its name in the model and with the user's line.

    Args:
        reason: a sentence without the subject.
        size_bytes: of the data concerned.
    """
    return Refusal(
        subject=f"{node.op_type} {node.onnx_name}".rstrip(),
        reason=reason,
        size_bytes=size_bytes,
        where=", ".join(filter(None, (node.module_path, node.source))),
    )


def refused_result(node: ONNXNode, reason: str, graph: OperatorGraph) -> Refusal:
    """The same, of the size of the operator's first result."""
    first = next(a for a in graph.results(node) if a is not None)
    return refused_node(node, reason, Value(first, graph).size_bytes)
