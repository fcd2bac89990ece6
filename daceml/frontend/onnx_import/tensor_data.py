"""The data of ONNX tensors: whether it is there and fits the shape, and reading it with one copy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import torch

from daceml.errors import OnnxFileError
from daceml.frontend.onnx_import.external_data import DataPlace, data_place
from daceml.onnx_ops.schema.element_types import BY_ONNX_CODE
from daceml.runtime.torch_types import DTYPES
from daceml.sdfg.element_codes import torch_code

# Field that holds the elements of a type where raw_data does not, and how many of its entries each takes.
_FIELDS: dict[int, tuple[str, int]] = {
    **dict.fromkeys((2, 3, 4, 5, 6, 9, 10, 16, 17, 18, 19, 20, 24), ("int32_data", 1)),
    1: ("float_data", 1),
    7: ("int64_data", 1),
    8: ("string_data", 1),
    11: ("double_data", 1),
    12: ("uint64_data", 1),
    13: ("uint64_data", 1),
    14: ("float_data", 2),
    15: ("double_data", 2),
}
_ALL_FIELDS = ("raw_data", *dict.fromkeys(field for field, _ in _FIELDS.values()))
# Types of 2, 4 or 6 bits, whose entries hold several elements; no array holds them, so nothing reads them.
_NARROW = frozenset(int(kind) for kind in ir.DataType if kind != ir.DataType.UNDEFINED) - frozenset(_FIELDS)
_LARGEST_DIM = 2**40


def check_tensor(tensor: onnx.TensorProto, file: Path | None) -> None:
    """Refuse a tensor whose type, shape and data do not belong together; reads no data.

    Raises:
        OnnxFileError: the message names the tensor.
    """
    if reason := _problem(tensor):
        raise OnnxFileError(
            f"tensor {tensor.name or '(unnamed)'!r} is malformed",
            where=str(file or "the model"),
            why=reason,
            fix="export the model again; a file that was cut or changed on its way has such tensors",
        )
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        data_place(tensor, _bytes(tensor), file)


def elements(tensor: onnx.TensorProto) -> int:
    """Number of elements by its shape."""
    return math.prod(tensor.dims)


def read_array(tensor: onnx.TensorProto, file: Path | None) -> np.ndarray:
    """The data as an array of the tensor's shape.

    Raises:
        OnnxFileError: external data that has gone or changed.
    """
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        array = np.empty(_bytes(tensor), dtype=np.uint8)
        _place(tensor, file).read_into(array)
        array = array.view(ir.DataType(tensor.data_type).numpy()).reshape(tuple(tensor.dims))
    else:
        array = onnx.numpy_helper.to_array(tensor)
    # every byte but 0 is true in ONNX, and undefined behaviour in C++
    return array.view(np.uint8) != 0 if array.dtype == np.bool_ else array


def read_tensor(tensor: onnx.TensorProto, file: Path | None) -> torch.Tensor:
    """The data as a tensor of its own, in memory as torch aligns it: one copy."""
    buffer = torch.empty(_bytes(tensor), dtype=torch.uint8)
    data = buffer.numpy()
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _place(tensor, file).read_into(data)
    elif tensor.raw_data:
        data[:] = np.frombuffer(tensor.raw_data, dtype=np.uint8)
    else:
        data[:] = read_array(tensor, file).reshape(-1).view(np.uint8)
    dtype = DTYPES[torch_code(BY_ONNX_CODE[tensor.data_type].dace_type)]
    if dtype is torch.bool:
        np.minimum(data, 1, out=data)
    return buffer.view(dtype).reshape(tuple(tensor.dims))


def load_in_place(tensor: onnx.TensorProto, file: Path | None) -> None:
    """Replace a reference to external data by the data."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        data = np.empty(_bytes(tensor), dtype=np.uint8)
        _place(tensor, file).read_into(data)
        tensor.raw_data = data.tobytes()
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def _place(tensor: onnx.TensorProto, file: Path | None) -> DataPlace:
    return data_place(tensor, _bytes(tensor), file)


def _bytes(tensor: onnx.TensorProto) -> int:
    return -(-elements(tensor) * ir.DataType(tensor.data_type).bitwidth // 8)


def _problem(tensor: onnx.TensorProto) -> str:
    if tensor.data_type not in _FIELDS and tensor.data_type not in _NARROW:
        return f"{tensor.data_type} is not an element type that onnx {onnx.__version__} knows"
    if bad := [dim for dim in tensor.dims if not 0 <= dim <= _LARGEST_DIM]:
        return f"its shape {list(tensor.dims)} has the dimension {bad[0]}"
    if tensor.HasField("segment"):
        return "it is stored in segments, which ONNX has never defined"
    held = _held(tensor)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if tensor.data_type == onnx.TensorProto.STRING:
            return "strings cannot lie in another file"
        return f"its data lies in another file, and in {next(iter(held))}, too" if held else ""
    if tensor.external_data:
        return "it has entries of external data, but is not marked as external"
    if len(held) > 1:
        return f"it has data in {' and in '.join(held)}"
    count = elements(tensor)
    if not held:
        return f"it has no data, and its shape {list(tensor.dims)} has {count} elements" if count else ""
    return _wrong_length(tensor, *held.popitem(), count)


def _held(tensor: onnx.TensorProto) -> dict[str, int]:
    """Lengths of the fields that hold anything; each field is copied into Python once to learn it."""
    fields = {field.name: value for field, value in tensor.ListFields() if field.name in _ALL_FIELDS}
    return {name: len(value) for name, value in fields.items() if len(value)}


def _wrong_length(tensor: onnx.TensorProto, field: str, held: int, count: int) -> str:
    wanted, entries = _FIELDS.get(tensor.data_type, ("int32_data", 0))
    if field not in ("raw_data", wanted) or (
        field == "raw_data" and tensor.data_type == onnx.TensorProto.STRING
    ):
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        return f"its elements are of type {kind}, which {field} does not hold"
    if field == "raw_data":
        needed, unit = _bytes(tensor), "bytes"
    elif entries:
        needed, unit = count * entries, "entries"
    else:
        return ""
    if held == needed:
        return ""
    return f"its shape {list(tensor.dims)} needs {needed} {unit} of data, and {field} has {held}"
