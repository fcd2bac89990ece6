"""Columns of the domain "daceml": what every window of a convolution covers, side by side in memory.

A convolution is then a product of matrices: [M/g, C/g * window] times [C/g * window, positions], for each
sample and group.
"""

from __future__ import annotations

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema

DOMAIN = "daceml"
_FLOATS = frozenset(f"tensor({name})" for name in ("float", "double", "float16", "bfloat16"))
_GEOMETRY = ("kernel_shape", "strides", "dilations", "pads")

Columns = define_operator(
    OperatorSchema(
        op_type="Columns",
        domain=DOMAIN,
        inputs=(Formal(name="X", connector="X", types=_FLOATS, type_variable="T"),),
        outputs=(Formal(name="Y", connector="Y", types=_FLOATS, type_variable="T"),),
        attributes={
            "group": Attribute(name="group", kind="int", required=True),
            "extents": Attribute(name="extents", kind="ints", required=True),
            **{name: Attribute(name=name, kind="ints", required=True) for name in _GEOMETRY},
        },
        doc="X: [N, C, spatial...] -> Y: [N, group, C/group * prod(kernel_shape), prod(extents)]; element "
        "[n, g, (c, k...), (o...)] is X at channel g * C/group + c, position o * strides + k * dilations "
        "- pads, zero outside. `extents` is the number of windows along each dimension.",
    ),
    module=__name__,
)
