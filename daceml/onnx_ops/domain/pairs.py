"""GatherPairs of the domain "daceml": reads at pairs of positions in two neighbouring dimensions."""

from __future__ import annotations

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema

GatherPairs = define_operator(
    OperatorSchema(
        op_type="GatherPairs",
        domain="daceml",
        inputs=(
            Formal(name="data", connector="data", type_variable="T"),
            *(
                Formal(
                    name=name,
                    connector=name,
                    types=frozenset({"tensor(int64)", "tensor(int32)"}),
                    type_variable="I",
                )
                for name in ("first", "second")
            ),
        ),
        outputs=(Formal(name="result", connector="result", type_variable="T"),),
        attributes={name: Attribute(name=name, kind="ints", required=True) for name in ("perm", "inverse")},
        doc="data[..., first, second, ...]: the dimensions are perm[0] and perm[0] + 1; `perm` and `inverse` "
        "are for a body that reads with GatherND.",
    ),
    module=__name__,
)
