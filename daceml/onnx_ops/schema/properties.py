"""dace Properties for ONNX attributes: typed, None when absent, JSON both ways."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from dace.properties import ListProperty, Property

from daceml.onnx_ops.schema.schema import UNSUPPORTED_KINDS, Attribute


class TensorProperty(Property[Any]):
    """A numpy array; JSON holds its bytes in base64, so that NaN payloads and empty arrays survive."""

    def __init__(self, desc: str) -> None:
        super().__init__(
            dtype=np.ndarray, default=None, allow_none=True, desc=desc, category="Semantics",
            to_json=tensor_to_json, from_json=tensor_from_json,
        )  # fmt: skip


def tensor_to_json(value: np.ndarray | None) -> dict[str, Any] | None:
    """A record of dtype name, shape and base64 bytes."""
    if value is None:
        return None
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {"dtype": value.dtype.name, "shape": list(value.shape), "base64": data}


def tensor_from_json(record: dict[str, Any] | None, context: object = None) -> np.ndarray | None:
    """Inverse of `tensor_to_json`."""
    if record is None:
        return None
    name = record["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, name))  # numpy alone knows no bfloat16
    flat = np.frombuffer(base64.b64decode(record["base64"]), dtype=dtype)
    return flat.reshape(record["shape"]).copy()


def attribute_property(attribute: Attribute) -> Property[Any] | None:
    """Property for an attribute; None for a kind that no node can hold."""
    if attribute.kind in UNSUPPORTED_KINDS:
        return None
    return _PROPERTIES[attribute.kind](f"ONNX attribute {attribute.name} ({attribute.kind})")


def fits(kind: str, value: object) -> bool:
    """Whether a Python value is one of an attribute kind."""
    if kind == "tensor":
        return isinstance(value, np.ndarray)
    if kind in _ELEMENTS:
        return _is_element(kind, value)
    element = kind.removesuffix("s")
    return (
        element in _ELEMENTS
        and isinstance(value, (list, tuple))
        and all(_is_element(element, item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    )


def _is_element(kind: str, value: object) -> bool:
    return isinstance(value, _ELEMENTS[kind]) and not (kind == "float" and isinstance(value, bool))


def _scalar(dtype: type) -> Callable[[str], Property[Any]]:
    return lambda desc: Property(dtype=dtype, default=None, allow_none=True, desc=desc, category="Semantics")


def _list(dtype: type) -> Callable[[str], Property[Any]]:
    return lambda desc: ListProperty(dtype, default=None, allow_none=True, desc=desc, category="Semantics")


# An int is a legal value of a float attribute, as everywhere in Python.
_ELEMENTS: dict[str, tuple[type, ...]] = {
    "int": (int, np.integer),
    "float": (float, int, np.floating),
    "string": (str,),
}
_PROPERTIES: dict[str, Callable[[str], Property[Any]]] = {
    "int": _scalar(int),
    "float": _scalar(float),
    "string": _scalar(str),
    "ints": _list(int),
    "floats": _list(float),
    "strings": _list(str),
    "tensor": TensorProperty,
}
