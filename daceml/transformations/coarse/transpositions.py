"""What a Transpose does."""

from __future__ import annotations

from daceml.onnx_ops.schema.node import ONNXNode


def order_of(node: ONNXNode, rank: int) -> tuple[int, ...]:
    """The operand's dimensions in the order of the result's; without an attribute they are reversed."""
    given = node.attribute_values().get("perm")
    return tuple(range(rank))[::-1] if given is None else tuple(given)
