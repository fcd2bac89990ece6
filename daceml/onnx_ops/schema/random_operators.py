"""Operators that draw random numbers: each draw is a value of its own, and moves the generator on."""

from __future__ import annotations

from daceml.onnx_ops.schema.node import ONNXNode

_STANDARD = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_OWN = frozenset({"BernoulliLike", "Draws", "DropoutMask", "Exponential", "Permutation", "RandomIntegers"})


def draws(node: ONNXNode) -> bool:
    """Whether a node may draw random numbers."""
    return is_random(node.op_type, node.domain) or bool(getattr(node, "draws", 0))


def is_random(op_type: str, domain: str) -> bool:
    """Whether an operator may draw random numbers, whatever its attributes are."""
    return op_type in (_OWN if domain else _STANDARD)
