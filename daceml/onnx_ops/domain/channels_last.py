"""Convolution of the domain "daceml" over arrays with their channels innermost, as vendor kernels want."""

from __future__ import annotations

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema

DOMAIN = "daceml"
# Of [N, H, W, C]: the dimensions of [N, C, H, W], and back
TO_CHANNELS_FIRST, TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)

_FLOATS = frozenset(f"tensor({name})" for name in ("float", "double", "float16", "bfloat16"))


def _tensor(name: str, *, optional: bool = False) -> Formal:
    option = "optional" if optional else "single"
    return Formal(name=name, connector=name, types=_FLOATS, type_variable="T", option=option)


ChannelsLastConv = define_operator(
    OperatorSchema(
        op_type="ChannelsLastConv",
        domain=DOMAIN,
        inputs=(_tensor("X"), _tensor("W"), _tensor("B", optional=True)),
        outputs=(_tensor("Y"),),
        attributes={
            "group": Attribute(name="group", kind="int", default=1),
            **{n: Attribute(name=n, kind="ints", required=True) for n in ("strides", "dilations", "pads")},
        },
        doc="ONNX's Conv of two spatial dimensions with X: [N, H, W, C] and Y: [N, H', W', M]; W is ONNX's "
        "[M, C/group, kH, kW].",
    ),
    module=__name__,
)
