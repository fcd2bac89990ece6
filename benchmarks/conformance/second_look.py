"""Where a result is not the standard's: is it nearer to the exact one?

The standard's results carry the rounding of float32, and some are farther from the exact ones than the
tolerance of their case: 1.9e-7 for a 0. The judge is the standard's own reference, run in float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.conformance.compare import difference

if TYPE_CHECKING:
    import onnx

    from benchmarks.conformance.cases import Case

# Attributes that name an element type
_TYPES = ("to", "dtype", "stash_type", "output_dtype")


@dataclass(frozen=True, kw_only=True)
class Results:
    """What came of one call, and what the standard stores for it."""

    inputs: Sequence[Any]
    ours: Sequence[Any]
    expected: Sequence[Any]


def nearer(case: Case, results: Results) -> bool:
    """Whether ours are the exact results within the case's own tolerance, and the stored ones no nearer.

    Nearer is meant of every element in which the two differ. False also where nothing is float32, so that
    there is nothing to widen, and where the reference cannot run the case.
    """
    if not any(np.asarray(x).dtype == np.float32 for x in (*results.inputs, *results.expected)):
        return False
    try:
        exact = _in_float64(case, results.inputs)
    except Exception:  # the reference lacks operators and types, and says so in errors of every kind
        return False
    if len(exact) != len(results.expected):
        return False
    return all(
        _one_nearer(mine, stored, true, case)
        for mine, stored, true in zip(results.ours, results.expected, exact, strict=True)
    )


def _one_nearer(mine: Any, stored: Any, exact: Any, case: Case) -> bool:
    if not isinstance(stored, np.ndarray) or stored.dtype != np.float32:
        return not difference([mine], [stored], rtol=case.rtol, atol=case.atol)
    mine, exact = np.asarray(mine), np.asarray(exact)
    if exact.dtype != np.float64 or mine.dtype != stored.dtype or mine.shape != stored.shape:
        return False
    mine, stored = mine.astype(np.float64), stored.astype(np.float64)
    if difference([mine], [exact], rtol=case.rtol, atol=case.atol):
        return False
    differ = ~np.isclose(mine, stored, case.rtol, case.atol, equal_nan=True)
    return bool((np.abs(mine - exact)[differ] <= np.abs(stored - exact)[differ]).all())


def _in_float64(case: Case, inputs: Sequence[Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in case.model.graph.input]
    feeds = {
        name: value.astype(np.float64) if getattr(value, "dtype", None) == np.float32 else value
        for name, value in zip(names, inputs, strict=False)
    }
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found: list[Any] = ReferenceEvaluator(widened(case.model)).run(None, feeds)  # pyright: ignore[reportAssignmentType]
    return found


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with double in the place of float, in types, tensors and attributes."""
    import onnx

    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    for function in wide.functions:
        for value in function.value_info:
            _widen_type(value.type)
        for node in function.node:
            _widen_node(node)
    return wide


def _widen_graph(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        _widen_type(value.type)
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        _widen_node(node)


def _widen_node(node: onnx.NodeProto) -> None:
    from onnx import AttributeProto, TensorProto, helper

    for position, attribute in enumerate(node.attribute):
        if attribute.type == AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        elif attribute.type == AttributeProto.GRAPH:
            _widen_graph(attribute.g)
        elif attribute.type == AttributeProto.TYPE_PROTO:
            _widen_type(attribute.tp)
        elif attribute.name in _TYPES and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            floats, dims = _floats(attribute)
            tensor = helper.make_tensor("value", TensorProto.DOUBLE, dims, floats)
            node.attribute[position].CopyFrom(helper.make_attribute("value", tensor))


def _floats(attribute: onnx.AttributeProto) -> tuple[list[float], list[int]]:
    if attribute.name == "value_float":
        return [attribute.f], []
    return list(attribute.floats), [len(attribute.floats)]


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type == TensorProto.FLOAT:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def _widen_type(proto: onnx.TypeProto) -> None:
    from onnx import TensorProto

    for tensor in _tensor_types(proto):
        if tensor.elem_type == TensorProto.FLOAT:
            tensor.elem_type = TensorProto.DOUBLE


def _tensor_types(proto: onnx.TypeProto) -> Iterator[Any]:
    match proto.WhichOneof("value"):
        case "tensor_type":
            yield proto.tensor_type
        case "sequence_type":
            yield from _tensor_types(proto.sequence_type.elem_type)
        case "optional_type":
            yield from _tensor_types(proto.optional_type.elem_type)
        case _:
            return
