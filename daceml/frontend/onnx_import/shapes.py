"""Types and symbolic shapes of every value of an ONNX graph.

Declared shapes are believed where they are complete. Where they are not, `onnx.shape_inference` fills the
gaps on a copy of the graph without parameter data, in turn with the evaluation of the small tensors that
shapes are computed from, until nothing new is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir

from daceml.errors import ShapeError
from daceml.frontend.onnx_import.declared_types import (
    SMALL_ELEMENTS,
    Declared,
    DeclaredDim,
    from_array,
    from_type_proto,
    to_value_info,
)
from daceml.frontend.onnx_import.onnx_worker import COMPLAINT
from daceml.frontend.onnx_import.shape_values import fold
from daceml.frontend.onnx_import.size_inference import size_values, sizes_from_values, solve_reshapes
from daceml.frontend.onnx_import.symbols import SymbolTable

Infer = Callable[[onnx.ModelProto], onnx.ModelProto]

# A chain of shape computations is followed at most this far; each turn runs shape inference once.
_MAX_TURNS = 20


def infer_here(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer in this process, for models that can be trusted."""
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def complete_types(
    model: ir.Model,
    declared: Mapping[str, Declared],
    symbols: SymbolTable,
    values: Mapping[str, np.ndarray],
    infer: Infer = infer_here,
    complaints: list[str] | None = None,
) -> dict[str, Declared]:
    """Fill in what is not declared, as far as it can be inferred.

    Args:
        model: read only; data of initializers is read only through `values`.
        declared: by value name, for every value of interest.
        symbols: decides which named dimensions are known.
        values: small tensors whose value is known: constants, initializers that are no parameters.
        infer: ONNX's shape inference, in this process or in one of its own.
        complaints: gets why the last inference could not go on past some node.
    Raises:
        ShapeError: inference rejects the model.
    """
    types, found = dict(declared), dict(values)
    for _ in range(_MAX_TURNS):
        if all(is_complete(entry, symbols) for entry in types.values()):
            break
        before, inferred = types, _infer(model, types, found, infer, complaints)
        types = {name: _merge(old, inferred.get(name, Declared()), symbols) for name, old in types.items()}
        types |= _like_operands(model, types, symbols)
        types |= solve_reshapes(model, types, symbols)
        types |= sizes_from_values(model, types, size_values(model, types, found, symbols), symbols)
        if all(is_complete(entry, symbols) for entry in types.values()):
            break
        new = fold(model, types, found)
        if not new and types == before:
            break
        found |= new
        types |= {name: from_array(array) for name, array in new.items() if name in types}
    return types


def is_complete(entry: Declared, symbols: SymbolTable) -> bool:
    """Whether nothing is left to infer; a refused value has nothing."""
    if entry.refusal:
        return True
    return entry.element is not None and entry.shape is not None and all(map(symbols.is_known, entry.shape))


def small_values(model: ir.Model, parameters: frozenset[str]) -> dict[str, np.ndarray]:
    """Initializers that may hold shapes, axes or pads; parameters and large tensors are not read."""
    return {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if name not in parameters
        and value.const_value is not None
        and value.const_value.size <= SMALL_ELEMENTS
        and value.const_value.dtype in _SHAPE_LIKE
    }


_SHAPE_LIKE = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.BOOL)


def _infer(
    model: ir.Model,
    types: Mapping[str, Declared],
    values: Mapping[str, np.ndarray],
    infer: Infer,
    complaints: list[str] | None,
) -> dict[str, Declared]:
    try:
        inferred = infer(_skeleton(model, types, values))
    except Exception as error:  # the C++ code raises several unrelated types
        raise ShapeError(
            "ONNX shape inference rejects the model",
            where=f"graph {model.graph.name or '(unnamed)'}",
            why=str(error).strip(),
            fix="run onnx.checker.check_model(model, full_check=True) and mend what it names",
        ) from error
    if complaints is not None:
        complaints[:] = [entry.value for entry in inferred.metadata_props if entry.key == COMPLAINT]
    infos = [*inferred.graph.value_info, *inferred.graph.output]
    return {info.name: from_type_proto(info.type) for info in infos}


def _skeleton(
    model: ir.Model, types: Mapping[str, Declared], values: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """The graph with small known values as initializers, every other initializer as an input without data."""
    outputs = {value.name for value in model.graph.outputs} - set(values)
    sources = {value.name for value in [*model.graph.inputs, *model.graph.initializers.values()]} - set(
        values
    )
    proto = onnx.ModelProto(ir_version=10)
    proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in model.opset_imports.items())
    proto.functions.extend(ir.serde.serialize_function(function) for function in model.functions.values())
    version = model.opset_imports.get("", model.opset_imports.get("ai.onnx", _ONE_WINDOW_LESS))
    graph = proto.graph
    graph.name = model.graph.name or "graph"
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in values.items())
    for node in model.graph:
        if not all(value.name in values for value in node.outputs if value.name):
            graph.node.append(_inferred_as_now(proto, ir.serde.serialize_node(node), version))
    for name, entry in types.items():
        if name in values or entry.element is None:
            continue
        place = graph.input if name in sources else graph.output if name in outputs else graph.value_info
        place.append(to_value_info(name, entry))
    return proto


# Until then, ONNX's shape inference counted a last window that starts in the padding at the end. No runtime
# computes it, and the text of every version leaves it out.
_ONE_WINDOW_LESS = 22
_POOLS = frozenset(["AveragePool", "LpPool", "MaxPool"])


def _inferred_as_now(proto: onnx.ModelProto, node: onnx.NodeProto, version: int) -> onnx.NodeProto:
    """A pool of an old opset as a function of the model's, whose opset is the newer one."""
    if version >= _ONE_WINDOW_LESS or node.op_type not in _POOLS or node.domain not in ("", "ai.onnx"):
        return node
    if not any(attribute.name == "ceil_mode" and attribute.i for attribute in node.attribute):
        return node
    domain, name = "daceml.inference", f"Pool{len(proto.functions)}"
    results = [f"y{place}" for place in range(len(node.output))]
    body = onnx.helper.make_node(node.op_type, ["x"], results)
    body.attribute.extend(node.attribute)
    opset = [onnx.helper.make_opsetid("", _ONE_WINDOW_LESS)]
    proto.functions.append(onnx.helper.make_function(domain, name, ["x"], results, [body], opset))
    if all(entry.domain != domain for entry in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    return onnx.helper.make_node(name, node.input, node.output, node.name, domain=domain)


# Operators for which ONNX has no shape inference: the result has the type of the first operand.
_LIKE_OPERAND = frozenset(["GroupNormalization", "MeanVarianceNormalization"])


def _like_operands(
    model: ir.Model, types: Mapping[str, Declared], symbols: SymbolTable
) -> dict[str, Declared]:
    found: dict[str, Declared] = {}
    for node in model.graph:
        if (
            node.op_type in _LIKE_OPERAND
            and node.domain in ("", "ai.onnx")
            and node.inputs
            and node.inputs[0]
        ):
            source, name = node.inputs[0].name or "", node.outputs[0].name or ""
            if name in types and not is_complete(types[name], symbols):
                found[name] = _merge(types[name], found.get(source, types.get(source, Declared())), symbols)
    return found


def _merge(first: Declared, second: Declared, symbols: SymbolTable) -> Declared:
    """The first, with what it leaves open taken from the second."""
    if first.refusal or second.refusal:
        return first if first.refusal else second
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        shape = first.shape if first.shape is not None else second.shape
        shape = None if shape is None else tuple(_better(dim, None, symbols) for dim in shape)
    else:
        shape = tuple(_better(a, b, symbols) for a, b in zip(first.shape, second.shape, strict=True))
    return Declared(element=first.element or second.element, shape=shape)


def _better(first: DeclaredDim, second: DeclaredDim, symbols: SymbolTable) -> DeclaredDim:
    """A number, else a known symbol; inference's own names for unknown dimensions (`unk__0`) are dropped."""
    if isinstance(first, int) or isinstance(second, int):
        return first if isinstance(first, int) else second
    return next((dim for dim in (first, second) if symbols.is_known(dim)), None)
