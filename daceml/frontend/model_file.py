"""Reading `.onnx` files: every way in which a file can be bad is one error with a reason."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.checker
import onnx.external_data_helper
from google.protobuf.message import DecodeError

from daceml.errors import OnnxFileError


def load_model(path: str | Path) -> onnx.ModelProto:
    """Load and check an ONNX file together with its external data.

    Operators that ONNX does not know are left to the importer, which says more about them.

    Raises:
        OnnxFileError: no such file, no protobuf, no complete model, external data missing or too short.
    """
    path = Path(path)
    if not path.is_file():
        reason = "it is a folder" if path.is_dir() else "there is no such file"
        raise _refuse(path, "cannot be read", reason, "check the path")
    try:
        model = onnx.load_model(path, load_external_data=False)
    except OSError as error:
        raise _refuse(path, "cannot be read", str(error), "check the permissions") from error
    except (DecodeError, ValueError, UnicodeDecodeError) as error:
        why = f"{path.stat().st_size} bytes that do not parse as an ONNX protobuf: {error}"
        raise _refuse(
            path, "is no ONNX model", why, "check that it was copied or downloaded whole"
        ) from error
    if not model.HasField("graph") or not model.ir_version or not model.opset_import:
        missing = [
            what for what, there in (("graph", model.HasField("graph")), ("IR version", model.ir_version),
                                     ("opset imports", model.opset_import)) if not there
        ]  # fmt: skip
        why = f"it has no {', no '.join(missing)}"
        raise _refuse(path, "is no complete ONNX model", why, "check that it was copied or downloaded whole")
    _load_external_data(model, path)
    _check(model, path)
    return model


def _load_external_data(model: onnx.ModelProto, path: Path) -> None:
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        data = path.parent / info.location
        needed = (info.offset or 0) + (info.length or 0)
        size = data.stat().st_size if data.is_file() else None
        if size is None or size < needed:
            why = (
                f"initializer {tensor.name!r} lies in {info.location!r}, which is not there"
                if size is None
                else f"initializer {tensor.name!r} needs {needed} bytes of {info.location!r}: it has {size}"
            )
            raise _refuse(path, "misses parameter data", why, "put the data file beside the model, whole")
    try:
        onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        fix = "put the data file beside the model, whole"
        raise _refuse(path, "misses parameter data", str(error), fix) from error


def _check(model: onnx.ModelProto, path: Path) -> None:
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        if "No Op registered" in str(error) or "No opset import" in str(error):
            return
        fix = "run onnx.checker.check_model on the file and mend what it names"
        raise _refuse(path, "is no valid ONNX model", str(error).strip(), fix) from error
    except ValueError:
        # protobuf cannot serialise more than 2 GiB; the importer checks each node in any case.
        return


def _refuse(path: Path, what: str, why: str, fix: str) -> OnnxFileError:
    return OnnxFileError(f"{path.name} {what}", where=str(path), why=why, fix=fix)
