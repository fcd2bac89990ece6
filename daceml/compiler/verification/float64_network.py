"""A network of ONNX nodes in float64: what rounding does there is far below what a fault does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import dace
import numpy as np

from daceml.onnx_ops.schema.element_types import ELEMENT_TYPES
from daceml.onnx_ops.schema.node import ONNXNode

if TYPE_CHECKING:
    from daceml.sdfg.network import Network

_NARROW = ("float", "float16", "bfloat16")
# attributes that name the element type of a result
_NAMES = ("to", "dtype")


def widened(network: Network) -> Network | None:
    """A copy in which every narrower floating type has become float64; None where there is none.

    Whether every operator takes the wider type is for its validation to say.
    """
    wide = copy.deepcopy(network)
    rows = [row for row in ELEMENT_TYPES if row.onnx_name in _NARROW]
    names = {row.dace_type for row in rows}
    narrow = [desc for desc in wide.sdfg.arrays.values() if desc.dtype in names]
    if not narrow:
        return None
    for desc in narrow:
        desc.dtype = dace.float64
    types, codes = {row.numpy_type for row in rows}, {row.onnx_code for row in rows}
    (double_code,) = (row.onnx_code for row in ELEMENT_TYPES if row.dace_type == dace.float64)

    def double(value: np.ndarray) -> np.ndarray:
        return value.astype(np.float64) if value.dtype in types else value

    wide.constants = {array: double(value) for array, value in wide.constants.items()}
    for node in wide.state.nodes():
        if not isinstance(node, ONNXNode):
            continue
        for name, attribute in node.schema.attributes.items():
            value = getattr(node, name, None)
            if isinstance(value, np.ndarray):
                setattr(node, name, double(value))
            elif attribute.kind == "int" and name in _NAMES and value in codes:
                setattr(node, name, double_code)
    return wide
