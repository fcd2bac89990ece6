"""Shapes and element types of an operator's results: ONNX's shape inference, on a model of this one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daceml.onnx_ops.fallback import node_proto, single_node_opset
from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE, BY_ONNX_CODE
from daceml.sdfg.sizes import Size

if TYPE_CHECKING:
    import dace
    import numpy as np

    from daceml.onnx_ops.schema.node import ONNXNode

_IR_VERSION = 10


@dataclass(frozen=True, kw_only=True)
class ResultType:
    """Shape and element type of a tensor; () is rank 0."""

    shape: tuple[Size, ...]
    dtype: dace.typeclass


def result_types(
    node: ONNXNode,
    inputs: Sequence[ResultType | None],
    count: int,
    constants: Mapping[int, np.ndarray],
) -> list[ResultType | None]:
    """Types of the results of a node, each None where inference does not tell all of it.

    Args:
        inputs: in the order of the schema, None for an absent one.
        count: how many results there are.
        constants: place among the inputs -> value, where it is known.
    """
    import onnx
    from onnx import helper, numpy_helper

    if node.domain:
        return [None] * count
    names = ["" if t is None else f"x{i}" for i, t in enumerate(inputs)]
    results = [f"y{i}" for i in range(count)]
    # a size is named in the model, and comes back under that name
    sizes = {str(n): n for t in inputs if t is not None for n in t.shape if not isinstance(n, int)}

    def info(name: str, known: ResultType) -> onnx.ValueInfoProto:
        shape = [n if isinstance(n, int) else str(n) for n in known.shape]
        return helper.make_tensor_value_info(name, BY_DACE_TYPE[known.dtype].onnx_code, shape)

    graph = helper.make_graph(
        [node_proto(node, names, results)],
        node.op_type,
        [info(name, t) for name, t in zip(names, inputs, strict=True) if t is not None],
        [helper.make_empty_tensor_value_info(name) for name in results],
        initializer=[numpy_helper.from_array(value, names[place]) for place, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[single_node_opset(node)], ir_version=_IR_VERSION)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    found: list[ResultType | None] = []
    for value in inferred.graph.output:
        tensor = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param) for d in tensor.shape.dim]
        known = tensor.elem_type in BY_ONNX_CODE and tensor.HasField("shape") and None not in dims
        found.append(
            ResultType(
                shape=tuple(d for d in dims if d is not None), dtype=BY_ONNX_CODE[tensor.elem_type].dace_type
            )
            if known
            else None
        )
    return found
