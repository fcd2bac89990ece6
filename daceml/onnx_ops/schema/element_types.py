"""Element types: one row per type that ONNX, dace and numpy all know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dace
import ml_dtypes
import numpy as np


@dataclass(frozen=True, kw_only=True)
class ElementType:
    """One element type under its three names.

    Attributes:
        onnx_code: value of `onnx.TensorProto.DataType`.
        onnx_name: as type constraints spell it, `float` in `tensor(float)`.
        dace_type: the typeclass of SDFG arrays.
        numpy_type: the dtype of constants.
    """

    onnx_code: int
    onnx_name: str
    dace_type: dace.typeclass
    numpy_type: np.dtype

    @property
    def constraint(self) -> str:
        """The type as ONNX type constraints write it, e.g. `tensor(float)`."""
        return f"tensor({self.onnx_name})"


def _row(code: int, name: str, dace_type: Any, numpy_type: Any) -> ElementType:
    return ElementType(onnx_code=code, onnx_name=name, dace_type=dace_type, numpy_type=np.dtype(numpy_type))


ELEMENT_TYPES: tuple[ElementType, ...] = (
    _row(1, "float", dace.float32, np.float32),
    _row(2, "uint8", dace.uint8, np.uint8),
    _row(3, "int8", dace.int8, np.int8),
    _row(4, "uint16", dace.uint16, np.uint16),
    _row(5, "int16", dace.int16, np.int16),
    _row(6, "int32", dace.int32, np.int32),
    _row(7, "int64", dace.int64, np.int64),
    _row(9, "bool", dace.bool, np.bool_),
    _row(10, "float16", dace.float16, np.float16),
    _row(11, "double", dace.float64, np.float64),
    _row(12, "uint32", dace.uint32, np.uint32),
    _row(13, "uint64", dace.uint64, np.uint64),
    _row(14, "complex64", dace.complex64, np.complex64),
    _row(15, "complex128", dace.complex128, np.complex128),
    _row(16, "bfloat16", dace.bfloat16, ml_dtypes.bfloat16),
)

BY_ONNX_CODE: dict[int, ElementType] = {row.onnx_code: row for row in ELEMENT_TYPES}
BY_DACE_TYPE: dict[dace.typeclass, ElementType] = {row.dace_type: row for row in ELEMENT_TYPES}
