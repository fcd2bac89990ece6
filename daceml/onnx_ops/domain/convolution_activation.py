"""A convolution with an activation behind it, as one call of a vendor's kernel, in the domain "daceml"."""

from __future__ import annotations

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema

DOMAIN = "daceml"
# In the order of `daceml::aten::Activation`
ACTIVATIONS = ("none", "relu", "clip", "swish")
_FLOATS = frozenset({"tensor(float)", "tensor(float16)", "tensor(bfloat16)"})
_GEOMETRY = ("strides", "dilations", "pads", "kernel_shape")

ConvActivation = define_operator(
    OperatorSchema(
        op_type="ConvActivation",
        domain=DOMAIN,
        inputs=tuple(
            Formal(name=name, connector=name, types=_FLOATS, option="single" if name in "XW" else "optional")
            for name in "XWBZ"
        ),
        outputs=(Formal(name="Y", connector="Y", types=_FLOATS),),
        attributes={
            "group": Attribute(name="group", kind="int", default=1),
            "auto_pad": Attribute(name="auto_pad", kind="string", default="NOTSET"),
            **{name: Attribute(name=name, kind="ints") for name in _GEOMETRY},
            "activation": Attribute(name="activation", kind="string", required=True),
            "low": Attribute(name="low", kind="float", default=0.0),
            "high": Attribute(name="high", kind="float", default=0.0),
        },
        doc="Y = activation(Conv(X, W, B) + Z), with the attributes of Conv. `activation` is none, relu, "
        "clip (to [low, high]) or swish, x sigmoid(x). relu and clip of oneDNN turn NaN into their "
        "lower bound: a rewrite that uses it has to rule NaN out.",
    ),
    module=__name__,
)
