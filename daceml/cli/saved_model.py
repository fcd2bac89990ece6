"""ONNX models and SDFGs as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dace
    import onnx

# protobuf reads and writes no message of 2 GB; the rest is room for the graph itself
INLINE_BYTES = 2**31 - 2**25


def save_onnx(model: onnx.ModelProto, path: Path) -> None:
    """Write a model; its tensors go to `<path>.data` where one file could not hold them."""
    import onnx_ir as ir

    model_ir = ir.from_proto(model)
    held = (value.const_value for value in model_ir.graph.initializers.values())
    size_bytes = sum(tensor.nbytes for tensor in held if tensor is not None)
    ir.save(model_ir, path, external_data=f"{path.name}.data" if size_bytes > INLINE_BYTES else None)


def save_sdfg(sdfg: dace.SDFG, path: Path) -> None:
    """Write an SDFG, compressed if the name ends in z."""
    sdfg.save(str(path), compress=path.suffix.endswith("z"))
