"""Operators of the domain "daceml" that torch has a kernel for and ONNX has no operator.

Each is one ATen operator: its numbers are torch's, NaN and ties included. Few have a body in standard
operators (`daceml.frontend.onnx_export.translations.torch_functions`); for the others, another reader of a
model brings its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Attribute, Formal, Kind, OperatorSchema

DOMAIN = "daceml"
NUMBERS = tuple(
    f"tensor({name})"
    for name in (
        *("float", "double", "float16", "bfloat16"),
        *("int8", "int16", "int32", "int64", "uint8", "bool"),
    )
)
POSITIONS = ("tensor(int64)", "tensor(int32)")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operator; `name:I` is a tensor of positions, `name:B` a mask, all others are of one type.

    Attributes:
        inputs, outputs: formal parameters.
        ints, floats, sizes: names of required attributes; `sizes` are lists of ints.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ints: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()

    def attributes(self) -> dict[str, Kind]:
        """Kind of each attribute."""
        kinds: dict[str, Kind] = dict.fromkeys(self.ints, "int")
        return {**kinds, **dict.fromkeys(self.floats, "float"), **dict.fromkeys(self.sizes, "ints")}


ROWS: dict[str, Row] = {
    "Sort": Row(inputs=("data",), outputs=("values", "indices:I"), ints=("axis", "descending")),
    "CumMax": Row(inputs=("data",), outputs=("values", "indices:I"), ints=("axis",)),
    "CumMin": Row(inputs=("data",), outputs=("values", "indices:I"), ints=("axis",)),
    "CumProd": Row(inputs=("data",), outputs=("values",), ints=("axis",)),
    "LogCumSumExp": Row(inputs=("data",), outputs=("values",), ints=("axis",)),
    "Median": Row(inputs=("data",), outputs=("values",)),
    "MedianAlong": Row(inputs=("data",), outputs=("values", "indices:I"), ints=("axis", "keepdims")),
    "TopK": Row(inputs=("data",), outputs=("values", "indices:I"), ints=("k", "axis", "largest", "sorted")),
    "KthValue": Row(inputs=("data",), outputs=("values", "indices:I"), ints=("k", "axis", "keepdims")),
    "SearchSorted": Row(inputs=("boundaries", "values"), outputs=("result:I",), ints=("right",)),
    "MaskedPut": Row(inputs=("data", "mask:B", "values"), outputs=("result",), ints=("accumulate",)),
    "AdaptiveMaxPool2d": Row(inputs=("data",), outputs=("values", "indices:I"), sizes=("size",)),
    "Distances": Row(inputs=("first", "second"), outputs=("result",), floats=("p",)),
    "Draws": Row(inputs=("weights",), outputs=("result:I",), ints=("count", "replacement")),
    "Permutation": Row(inputs=(), outputs=("result:I",), ints=("count",)),
    "RandomIntegers": Row(inputs=("shape:I",), outputs=("result",), ints=("low", "high", "dtype")),
    "Exponential": Row(inputs=("like",), outputs=("result",), floats=("rate",)),
    "BernoulliLike": Row(inputs=("like",), outputs=("result",), floats=("p",)),
    "Log1p": Row(inputs=("data",), outputs=("result",)),
    "Expm1": Row(inputs=("data",), outputs=("result",)),
    "Erfc": Row(inputs=("data",), outputs=("result",)),
    "Entropy": Row(inputs=("data",), outputs=("result",)),
    "XLogY": Row(inputs=("first", "second"), outputs=("result",)),
    "XLog1PY": Row(inputs=("first", "second"), outputs=("result",)),
    "BinaryCrossEntropy": Row(inputs=("probability", "target"), outputs=("result",)),
    "SignBit": Row(inputs=("data",), outputs=("result:B",)),
    "LogAddExp": Row(inputs=("first", "second"), outputs=("result",)),
    "LogAddExp2": Row(inputs=("first", "second"), outputs=("result",)),
    "StopGradient": Row(inputs=("data",), outputs=("result",)),
    "HardTanh": Row(inputs=("data", "low", "high"), outputs=("result",)),
    "Hypot": Row(inputs=("first", "second"), outputs=("result",)),
    "Atan2": Row(inputs=("first", "second"), outputs=("result",)),
    "FloorDivide": Row(inputs=("first", "second"), outputs=("result",)),
    "Remainder": Row(inputs=("first", "second"), outputs=("result",)),
}


def type_of(parameter: str) -> tuple[str, str, tuple[str, ...]]:
    """Name, type variable and types of a formal parameter."""
    name, _, kind = parameter.partition(":")
    match kind:
        case "I":
            return name, "I", POSITIONS
        case "B":
            return name, "B", ("tensor(bool)",)
        case _:
            return name, "T", NUMBERS


def _formal(parameter: str) -> Formal:
    name, variable, types = type_of(parameter)
    return Formal(name=name, connector=name, types=frozenset(types), type_variable=variable)


for _name, _row in ROWS.items():
    globals()[_name] = define_operator(
        OperatorSchema(
            op_type=_name,
            domain=DOMAIN,
            inputs=tuple(map(_formal, _row.inputs)),
            outputs=tuple(map(_formal, _row.outputs)),
            attributes={
                name: Attribute(name=name, kind=kind, required=True)
                for name, kind in _row.attributes().items()
            },
            doc=f"torch's {_name}.",
        ),
        module=__name__,
    )
