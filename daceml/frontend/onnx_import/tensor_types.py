"""The type of a tensor in a network, or the reason why a value has none."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from daceml.errors import ShapeError, UnheldValueError
from daceml.frontend.onnx_import.declared_types import Declared, format_shape
from daceml.frontend.onnx_import.symbols import Dim, SymbolTable
from daceml.onnx_ops.schema.element_types import BY_ONNX_CODE, ElementType

_FIX_HINT = 'import_model(..., dims={"batch": 8}) sets a named dimension'


@dataclass(frozen=True, kw_only=True)
class TensorType:
    """Element type and shape of a tensor; rank 0 is the empty tuple."""

    element: ElementType
    shape: tuple[Dim, ...]

    @property
    def array_shape(self) -> tuple[Dim, ...]:
        """Shape of the array that holds it: a tensor of rank 0 is an array of shape (1,)."""
        return self.shape or (1,)


def tensor_type(entry: Declared, symbols: SymbolTable, *, value: str, where: str) -> TensorType:
    """Type of a tensor that a network can hold.

    Raises:
        ShapeError: no tensor, an element type without arrays, an unknown rank or dimension.
    """
    problem = _refusal(entry, value) or _unknown_type(entry, value) or _unknown_dim(entry, symbols, value)
    if problem is not None:
        what, why, fix = problem
        kind = ShapeError if _is_unknown(entry) else UnheldValueError
        raise kind(what, where=where, why=why, fix=fix)
    shape = tuple(symbols.dim(dim) for dim in entry.shape or () if dim is not None)
    return TensorType(element=BY_ONNX_CODE[entry.element or 0], shape=shape)


def _is_unknown(entry: Declared) -> bool:
    """Whether the model leaves open what the value is."""
    return not entry.refusal and (entry.element is None or entry.element in BY_ONNX_CODE)


# what, why, fix
_Problem = tuple[str, str, str]


def _refusal(entry: Declared, value: str) -> _Problem | None:
    if entry.refusal:
        fix = "rewrite this part of the model with tensors"
        return f"{value!r} cannot be held in a network", entry.refusal, fix
    if entry.element is None or entry.element in BY_ONNX_CODE:
        return None
    held = onnx.TensorProto.DataType.Name(entry.element).lower()
    fix = "cast or dequantise the tensor before it enters the model"
    return (
        f"{value!r} has element type {held}, which arrays cannot hold",
        "arrays hold " + ", ".join(row.onnx_name for row in BY_ONNX_CODE.values()),
        "map the strings to integers outside of the model" if held == "string" else fix,
    )


def _unknown_type(entry: Declared, value: str) -> _Problem | None:
    if entry.element is not None and entry.shape is not None:
        return None
    return (
        f"the {'element type' if entry.element is None else 'rank'} of {value!r} is unknown",
        "the model does not say, and ONNX shape inference cannot tell",
        f"give the value a complete value_info, or fix the shapes of the inputs ({_FIX_HINT})",
    )


def _unknown_dim(entry: Declared, symbols: SymbolTable, value: str) -> _Problem | None:
    for axis, dim in enumerate(entry.shape or ()):
        if symbols.is_known(dim):
            continue
        because = f" is {dim!r}, which no input's shape fixes" if isinstance(dim, str) else " is unknown"
        return (
            f"dimension {axis} of {value!r} is unknown",
            f"after ONNX shape inference its shape is {format_shape(entry.shape or ())}; "
            f"dimension {axis}{because}",
            f"export with fixed or named dimensions that determine it ({_FIX_HINT}); "
            "an operator whose output size depends on data cannot be compiled",
        )
    return None
