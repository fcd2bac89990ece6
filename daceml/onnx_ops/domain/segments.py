"""Operators of the domain "daceml" on segments: consecutive rows, each segment from its offset to the next.

The front end writes them as local functions with a body in standard operators, for readers that do not know
them; here they are nodes of their own.
"""

from __future__ import annotations

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Formal, OperatorSchema

DOMAIN = "daceml"
_FLOATS = frozenset(f"tensor({name})" for name in ("float", "double", "float16", "bfloat16"))
_POSITIONS = frozenset({"tensor(int64)", "tensor(int32)"})


def _rows(name: str) -> Formal:
    return Formal(name=name, connector=name, types=_FLOATS, type_variable="T")


def _positions(name: str) -> Formal:
    return Formal(name=name, connector=name, types=_POSITIONS, type_variable="I")


def _schema(op_type: str, inputs: tuple[Formal, ...], doc: str) -> OperatorSchema:
    return OperatorSchema(op_type=op_type, domain=DOMAIN, inputs=inputs, outputs=(_rows("result"),), doc=doc)


EmbeddingBagSum = define_operator(
    _schema(
        "EmbeddingBagSum",
        (_rows("weight"), _positions("indices"), _positions("offsets")),
        "weight: [V, D], indices: [T], offsets: [B] -> sums of rows: [B, D]; empty bags are zero.",
    ),
    module=__name__,
)
SegmentSum = define_operator(
    _schema(
        "SegmentSum",
        (_rows("rows"), _positions("offsets")),
        "rows: [T, D], offsets: [B] -> sums of consecutive rows: [B, D]; empty segments are zero.",
    ),
    module=__name__,
)
SegmentMax = define_operator(
    _schema(
        "SegmentMax",
        (_rows("rows"), _positions("offsets")),
        "rows: [T, D], offsets: [B] -> maxima of consecutive rows: [B, D]; empty segments are -inf.",
    ),
    module=__name__,
)
