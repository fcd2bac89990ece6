"""Tensor data in files beside a model: where it lies, and reading it straight into place.

A model file decides which bytes of which file are read, so it is held to its own folder: no absolute path, no
`..`, no link that leads elsewhere, nothing but plain files.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from daceml.errors import OnnxFileError

if TYPE_CHECKING:
    import numpy as np

_BESIDE = "put the complete data file into the folder of the model"
_PORTABLE = "save the model again with its data in files of the same folder, named by relative paths"


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """Bytes `offset … offset + length` of a file.

    Attributes:
        location: as the model spells it.
    """

    file: Path
    location: str
    offset: int
    length: int

    def read_into(self, target: np.ndarray) -> None:
        """Fill an array of bytes; the file was checked before, and may have changed since.

        Raises:
            OnnxFileError: it cannot be read, or ends too early.
        """
        view = memoryview(target)  # pyright: ignore[reportArgumentType]
        done = 0
        try:
            with self.file.open("rb", buffering=0) as stream:
                stream.seek(self.offset)
                while done < len(view) and (count := stream.readinto(view[done:])):
                    done += count
        except OSError as error:
            raise _refuse(self.file, f"{self.location!r} cannot be read", str(error), _BESIDE) from error
        if done < len(view):
            why = f"it ends {len(view) - done} bytes too early: it has changed since the model was loaded"
            raise _refuse(self.file, f"{self.location!r} cannot be read", why, _BESIDE)


def data_place(tensor: onnx.TensorProto, needed: int, file: Path | None) -> DataPlace:
    """Where the data of a tensor lies, checked.

    Args:
        tensor: with `data_location` EXTERNAL.
        needed: bytes that its type and shape need.
        file: of the model; None for a model that came without one.
    Raises:
        OnnxFileError: the entry is malformed, leads outside the model's folder, or the file is missing or
            short.
    """
    if file is None:
        raise OnnxFileError(
            f"tensor {tensor.name!r} has its data in another file",
            why="the model was passed as a ModelProto, which does not say which folder that file is in",
            fix="pass the model's path, or load the data first with onnx.load_external_data_for_model",
        )
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    offset = _number(entries.get("offset", "0"), "offset", tensor, file)
    length = _number(entries.get("length", str(needed)), "length", tensor, file)
    if length != needed:
        held = f"tensor {tensor.name!r} has {length} bytes of data in {location!r}"
        why = f"{held}; its type and shape need {needed}"
        raise _refuse(file, f"{file.name} has tensor data that does not fit", why, _PORTABLE)
    path = _inside(location, tensor, file)
    try:
        found = path.stat()
    except OSError:
        found = None
    if found is None or not stat.S_ISREG(found.st_mode):
        what = "which is not there" if found is None else "which is not a file"
        why = f"initializer {tensor.name!r} lies in {location!r}, {what}"
        raise _refuse(file, f"{file.name} misses parameter data", why, _BESIDE)
    if found.st_size < offset + needed:
        needs = f"initializer {tensor.name!r} needs {offset + needed} bytes of {location!r}"
        why = f"{needs}: it has {found.st_size}"
        raise _refuse(file, f"{file.name} misses parameter data", why, _BESIDE)
    return DataPlace(file=path, location=location, offset=offset, length=needed)


def _number(text: str, key: str, tensor: onnx.TensorProto, file: Path) -> int:
    # 20 digits hold every size of a file; int() alone takes signs, underscores and other scripts' digits
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        why = f"the {key} of tensor {tensor.name!r} is {text[:40]!r}: no number of bytes"
        raise _refuse(file, f"{file.name} has malformed entries of external data", why, _PORTABLE)
    return int(text)


def _inside(location: str, tensor: onnx.TensorProto, file: Path) -> Path:
    """The real path of a data file, which lies in the model's folder or below it."""
    parts = Path(location).parts
    reason = ""
    if not location or "\0" in location or location.endswith(("/", "\\")):
        reason = "it names no file"
    elif os.path.isabs(location) or "\\" in location:
        reason = "it is not a relative path"
    elif ".." in parts:
        reason = "it leads out of the model's folder"
    if not reason:
        # A model in a content-addressed store is a link itself, and its data lies beside what it points to.
        folders = {Path(os.path.realpath(file.parent)), Path(os.path.realpath(file)).parent}
        path = Path(os.path.realpath(file.parent / location))
        if any(path.is_relative_to(folder) for folder in folders):
            return path
        reason = f"it is a link out of the model's folder, to {path}"
    why = f"the data of tensor {tensor.name!r} is said to lie in {location[:200]!r}: {reason}"
    raise _refuse(file, f"{file.name} points outside its folder", why, _PORTABLE)


def _refuse(file: Path, what: str, why: str, fix: str) -> OnnxFileError:
    return OnnxFileError(what, where=str(file), why=why, fix=fix)
