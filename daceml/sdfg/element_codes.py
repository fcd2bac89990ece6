"""DaCe's element types as torch's stable C ABI numbers them; `torch_types` has the other half."""

from __future__ import annotations

from typing import Any

import dace

from daceml.errors import ShapeError

TORCH_CODES: dict[Any, int] = {
    dace.uint8: 0,
    dace.int8: 1,
    dace.int16: 2,
    dace.int32: 3,
    dace.int64: 4,
    dace.float16: 5,
    dace.float32: 6,
    dace.float64: 7,
    dace.complex64: 9,
    dace.complex128: 10,
    dace.bool: 11,
    dace.bfloat16: 15,
    dace.uint16: 27,
    dace.uint32: 28,
    dace.uint64: 29,
}


def torch_code(element_type: dace.typeclass) -> int:
    """Number of an element type.

    Raises:
        ShapeError: torch has no such type.
    """
    if element_type not in TORCH_CODES:
        raise ShapeError(
            f"torch has no element type {element_type}",
            why=f"daceml passes {', '.join(t.to_string() for t in TORCH_CODES)}",
            fix="cast the tensor to one of these",
        )
    return TORCH_CODES[element_type]
