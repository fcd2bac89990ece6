"""A product of matrices with an activation behind it: one call of a vendor's kernel, domain "daceml"."""

from __future__ import annotations

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema

DOMAIN = "daceml"
ACTIVATIONS = ("relu", "gelu_tanh")
_FLOATS = frozenset({"tensor(float)", "tensor(float16)", "tensor(bfloat16)"})

GemmActivation = define_operator(
    OperatorSchema(
        op_type="GemmActivation",
        domain=DOMAIN,
        inputs=tuple(Formal(name=n, connector=n, types=_FLOATS, type_variable="T") for n in "ABC"),
        outputs=(Formal(name="Y", connector="Y", types=_FLOATS, type_variable="T"),),
        attributes={
            "alpha": Attribute(name="alpha", kind="float", default=1.0),
            "transA": Attribute(name="transA", kind="int", default=0),
            "transB": Attribute(name="transB", kind="int", default=0),
            "activation": Attribute(name="activation", kind="string", required=True),
        },
        doc="Y = activation(alpha A' B' + C), with C one number for each column. `activation` is relu or "
        "gelu_tanh, the approximation of GELU by tanh. cuBLASLt does not say that its relu keeps NaN: "
        "a rewrite that uses it accepts that.",
    ),
    module=__name__,
)
