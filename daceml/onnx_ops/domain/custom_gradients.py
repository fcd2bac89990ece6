"""Operators of the domain "daceml" that carry the user's own gradients through a model.

`WithGradient` has the value of its first operand; then come operands, then as many gradients of theirs, which
are made of cotangents that `CotangentOf` stands for. Differentiation removes both
(`daceml.autodiff.custom_gradients`).
"""

from __future__ import annotations

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Formal, OperatorSchema

DOMAIN = "daceml"


def _formal(name: str, *, variadic: bool = False) -> Formal:
    if variadic:
        return Formal(name=name, connector=name, option="variadic", min_arity=0, homogeneous=False)
    return Formal(name=name, connector=name)


CotangentOf = define_operator(
    OperatorSchema(
        op_type="CotangentOf",
        domain=DOMAIN,
        inputs=(_formal("data"),),
        outputs=(_formal("cotangent"),),
        doc="The cotangent of a tensor; there is none before differentiation.",
    ),
    module=__name__,
)
WithGradient = define_operator(
    OperatorSchema(
        op_type="WithGradient",
        domain=DOMAIN,
        inputs=(_formal("tensors", variadic=True),),
        outputs=(_formal("value"),),
        doc="The first tensor; then come the operands behind it, then their gradients.",
    ),
    module=__name__,
)

CUSTOM = frozenset({CotangentOf.op_type, WithGradient.op_type})
"""Both, whose operands are known by their arrays."""
