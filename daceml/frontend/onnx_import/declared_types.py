"""What a model declares about the types of its values, before symbols are resolved."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_ir as ir

from daceml.frontend.onnx_import.identifiers import identifier

# A dimension as declared: a number, the text of a dim_param, or None for unknown.
DeclaredDim = int | str | None

# Tensors of up to this many elements may hold shapes, axes, pads; shape inference gets them with their data.
SMALL_ELEMENTS = 1024


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What is declared or inferred about a value; None is unknown, `refusal` says why it is no tensor."""

    element: int | None = None
    shape: tuple[DeclaredDim, ...] | None = None
    refusal: str = ""


def declared(value: ir.Value) -> Declared:
    """What the model itself says about a value; an initializer says it by its data."""
    if value.const_value is not None:
        tensor = value.const_value
        return Declared(element=int(tensor.dtype), shape=_shape(tensor.shape))
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        kind = type(value.type).__name__.removesuffix("Type").lower()
        return _no_tensor(kind)
    element = None if value.dtype is None or value.dtype == ir.DataType.UNDEFINED else int(value.dtype)
    return Declared(element=element, shape=None if value.shape is None else _shape(value.shape))


def _shape(shape: ir.ShapeProtocol) -> tuple[DeclaredDim, ...]:
    numbers = (dim if isinstance(dim, int) else dim.value or None for dim in shape)
    return tuple(
        None if isinstance(dim, int) and dim < 0 else dim for dim in numbers
    )  # some exporters write -1


def from_array(array: np.ndarray) -> Declared:
    """The type of a constant."""
    return Declared(element=int(ir.DataType.from_numpy(array.dtype)), shape=array.shape)


def to_value_info(name: str, entry: Declared) -> onnx.ValueInfoProto:
    """As ONNX protobuf."""
    return onnx.helper.make_tensor_value_info(name, entry.element or 0, entry.shape)


def from_type_proto(proto: onnx.TypeProto) -> Declared:
    """From ONNX protobuf."""
    kind = proto.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        text = kind.removesuffix("_type").replace("_", " ")
        return _no_tensor(text)
    tensor = proto.tensor_type
    shape: tuple[DeclaredDim, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_param or None
            if dim.WhichOneof("value") != "dim_value"
            else dim.dim_value
            if dim.dim_value >= 0  # inference subtracts a window from a size that is smaller
            else None
            for dim in tensor.shape.dim
        )
    return Declared(element=tensor.elem_type or None, shape=shape)


def _no_tensor(kind: str) -> Declared:
    article = "an" if kind[0] in "aeiou" else "a"
    return Declared(refusal=f"it is {article} {kind}, and a network holds dense tensors only")


def unnamed_dims(name: str, entry: Declared, taken: set[str]) -> Declared:
    """The type of a graph input whose dimensions without size or name get a name: any size."""
    if entry.shape is None or None not in entry.shape:
        return entry
    shape: list[DeclaredDim] = []
    for axis, dim in enumerate(entry.shape):
        text = f"{identifier(name)}_dim{axis}"
        while dim is None and text in taken:
            text += "_"
        taken.add(text)
        shape.append(text if dim is None else dim)
    return replace(entry, shape=tuple(shape))


def format_type(entry: Declared) -> str:
    """A type as people write it: float [N, 3]; what is unknown is a question mark."""
    names = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    kind = names.get(entry.element or 0, str(entry.element)) if entry.element else "?"
    return f"{kind} {'[...]' if entry.shape is None else format_shape(entry.shape)}"


def format_shape(shape: tuple[DeclaredDim, ...]) -> str:
    """A shape as people write it: [N, 3, ?]."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
