"""Reading `.onnx` files: every way in which a file can be bad is one error with a reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from daceml.errors import OnnxFileError
from daceml.frontend.onnx_import.declared_types import SMALL_ELEMENTS
from daceml.frontend.onnx_import.model_check import check_model, tensors
from daceml.frontend.onnx_import.tensor_data import elements, load_in_place, read_array, read_tensor
from daceml.onnx_ops.schema.element_types import BY_ONNX_CODE

if TYPE_CHECKING:
    import torch

_WHOLE = "check that it was copied or downloaded whole"
# protobuf's own limit for one message
_MOST_BYTES = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """An ONNX model that has been checked, and where its data is.

    Attributes:
        model: large initializers with data in other files keep the reference; nothing else has one.
        name: for messages.
        file: that it was read from; None for a model that was passed in memory.
    """

    model: onnx.ModelProto
    name: str
    file: Path | None = None

    def weight_names(self) -> frozenset[str]:
        """Initializers that a program is bound to, as a module's is to its parameters: all but small ones.

        Their values are no part of the program. Small ones may be shapes, axes or pads, whose values are.
        """
        large = (t for t in self.model.graph.initializer if elements(t) > SMALL_ELEMENTS)
        return frozenset(tensor.name for tensor in large if tensor.data_type in BY_ONNX_CODE)

    def attach(self, model: ir.Model) -> None:
        """Let a model made from this one find data in other files when asked for it. Mutates the model."""
        for tensor in self.model.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL and tensor.name in model.graph.initializers:
                model.graph.initializers[tensor.name].const_value = ir.LazyTensor(
                    lambda tensor=tensor: ir.tensor(read_array(tensor, self.file)),
                    dtype=ir.DataType(tensor.data_type),
                    shape=ir.Shape(tensor.dims),
                    name=tensor.name,
                )

    def weights(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Data of initializers, each in memory of its own: one copy.

        Raises:
            OnnxFileError: external data that has gone or changed since the check.
        """
        wanted = set(names)
        found = (tensor for tensor in self.model.graph.initializer if tensor.name in wanted)
        return {tensor.name: read_tensor(tensor, self.file) for tensor in found}

    def complete(self) -> onnx.ModelProto:
        """The model with all data in it; the same object where no data lies elsewhere."""
        if not any(t.data_location == onnx.TensorProto.EXTERNAL for t in self.model.graph.initializer):
            return self.model
        whole = onnx.ModelProto()
        whole.CopyFrom(self.model)
        for tensor in whole.graph.initializer:
            load_in_place(tensor, self.file)
        return whole


def read_model(path: str | Path) -> ModelSource:
    """Read and check an ONNX file; data in other files is checked and left there.

    Operators that ONNX does not know are left to the importer, which says more about them.

    Raises:
        OnnxFileError: no such file, no protobuf, no complete model, a malformed graph or tensor, external
            data that is missing, too short or outside of the model's folder.
    """
    path = Path(path)
    if not path.is_file():
        reason = (
            "it is a folder"
            if path.is_dir()
            else "it is not a plain file"
            if path.exists()
            else "there is no such file"
        )
        raise _refuse(path, "cannot be read", reason, "check the path")
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            why = f"it has {size} bytes, and a protobuf holds at most {_MOST_BYTES}"
            raise _refuse(
                path, "is no ONNX model", why, "save the model with its data in files of its folder"
            )
        data = path.read_bytes()
    except OSError as error:
        raise _refuse(path, "cannot be read", str(error), "check the permissions") from error
    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, ValueError) as error:
        why = f"{size} bytes that do not parse as an ONNX protobuf: {error}"
        raise _refuse(path, "is no ONNX model", why, _WHOLE) from error
    return checked(ModelSource(model=model, name=path.name, file=path))


def checked(source: ModelSource) -> ModelSource:
    """The same source once its model has been checked; attributes and small tensors get their data.

    Raises:
        OnnxFileError: see `read_model`.
    """
    check_model(source.model, name=source.name, file=source.file)
    initializers = len(source.model.graph.initializer)
    for position, tensor in enumerate(tensors(source.model)):
        if position >= initializers or elements(tensor) <= SMALL_ELEMENTS:
            load_in_place(tensor, source.file)
    return source


def _refuse(path: Path, what: str, why: str, fix: str) -> OnnxFileError:
    return OnnxFileError(f"{path.name} {what}", where=str(path), why=why, fix=fix)
