"""What must hold of an ONNX model before anything works with it.

Written in Python, because onnx's own checker takes the whole model in one serialised piece, data and all, and
is C++ that a malformed model can crash. What a single node needs (attributes, arity, element types) is the
importer's to check, which knows the operators' schemas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx

from daceml.errors import OnnxFileError
from daceml.frontend.onnx_import.tensor_data import check_tensor

_CHECKER = "run onnx.checker.check_model on the model and mend what it names"
_WHOLE = "check that it was copied or downloaded whole"
# Local functions that call each other may describe more nodes than any memory holds.
_MOST_NODES = 1_000_000

_A = onnx.AttributeProto
_ATTRIBUTE_FIELDS: dict[int, str] = {
    _A.FLOAT: "f", _A.INT: "i", _A.STRING: "s", _A.TENSOR: "t", _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp", _A.FLOATS: "floats", _A.INTS: "ints", _A.STRINGS: "strings", _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs", _A.SPARSE_TENSORS: "sparse_tensors", _A.TYPE_PROTOS: "type_protos",
}  # fmt: skip
_SINGLE = frozenset(_ATTRIBUTE_FIELDS[kind] for kind in (1, 2, 3, 4, 5, 11, 13))


def check_model(model: onnx.ModelProto, *, name: str, file: Path | None) -> None:
    """Refuse a model that is incomplete, no graph in static single assignment form, or has impossible data.

    Args:
        model: external data not loaded; it is checked where it lies.
        name: of the model, for messages.
        file: that the model was read from, if any.
    Raises:
        OnnxFileError: what is wrong.
    """
    place = str(file or "the model passed as ModelProto")
    _check_whole(model, name, place)
    for what, text in _texts(model):
        if not isinstance(text, str):
            why = f"{what} is not UTF-8: {text!r}"
            raise OnnxFileError(f"{name} is not a valid ONNX model", where=place, why=why, fix=_WHOLE)
    for tensor in tensors(model):
        check_tensor(tensor, file)
    for reason in _graph_problems(model):
        raise OnnxFileError(f"{name} is not a valid ONNX model", where=place, why=reason, fix=_CHECKER)


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers of the graph, and tensors in attributes of its nodes and of local functions."""
    yield from model.graph.initializer
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.type == _A.TENSOR:
                    yield attribute.t
                elif attribute.type == _A.TENSORS:
                    yield from attribute.tensors


def _check_whole(model: onnx.ModelProto, name: str, place: str) -> None:
    there = {
        "graph": model.HasField("graph"), "IR version": model.ir_version > 0,
        "opset imports": bool(model.opset_import),
    }  # fmt: skip
    if missing := [what for what, found in there.items() if not found]:
        why = f"it has no {', no '.join(missing)}"
        raise OnnxFileError(f"{name} is not a complete ONNX model", where=place, why=why, fix=_WHOLE)
    if model.ir_version > onnx.IR_VERSION:
        raise OnnxFileError(
            f"{name} is of a newer ONNX than this one",
            where=place,
            why=f"its IR version is {model.ir_version}; "
            f"onnx {onnx.__version__} knows versions up to {onnx.IR_VERSION}",
            fix="install a newer onnx, or save the model with an older IR version",
        )


def _texts(model: onnx.ModelProto) -> Iterator[tuple[str, str | bytes]]:
    """Names that the graph is made of, with what they name; protobuf gives bytes where they are not UTF-8."""
    graph = model.graph
    for kind, things in (
        ("tensor", tensors(model)),
        ("input", graph.input),
        ("output", graph.output),
        ("value", graph.value_info),
    ):
        yield from ((f"the name of {_an(kind)}", thing.name) for thing in things)
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from (("the name of a dimension", dim.dim_param) for dim in value.type.tensor_type.shape.dim)
    yield "the name of the graph", graph.name
    yield from (("a domain", entry.domain) for entry in model.opset_import)
    yield from (("metadata", text) for entry in model.metadata_props for text in (entry.key, entry.value))
    for function in model.functions:
        yield from (
            ("the name of a function", text) for text in (function.name, function.domain, function.overload)
        )
        yield from (("the name of a value", text) for text in (*function.input, *function.output))
        yield from (("a domain", entry.domain) for entry in function.opset_import)
    for nodes in (graph.node, *(function.node for function in model.functions)):
        for node in nodes:
            yield from (
                ("the name of a node", text) for text in (node.name, node.op_type, node.domain, node.overload)
            )
            yield from (("the name of a value", text) for text in (*node.input, *node.output))
            yield from (
                ("the name of an attribute", t) for a in node.attribute for t in (a.name, a.ref_attr_name)
            )
            yield from (
                ("metadata", text) for entry in node.metadata_props for text in (entry.key, entry.value)
            )


def _an(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _graph_problems(model: onnx.ModelProto) -> Iterator[str]:
    domains = Counter("" if entry.domain == "ai.onnx" else entry.domain for entry in model.opset_import)
    yield from (f"it imports domain {domain!r} {n} times" for domain, n in domains.items() if n > 1)
    graph = model.graph
    inputs, outputs = ([value.name for value in side] for side in (graph.input, graph.output))
    data = [tensor.name for tensor in graph.initializer]
    for kind, names in (("graph inputs", inputs), ("initializers", data)):
        yield from (f"two {kind} are named {name!r}" for name, count in Counter(names).items() if count > 1)
    if "" in inputs or "" in outputs or "" in data:
        yield "an input, output or initializer of its graph has no name"
    if not outputs:
        yield "its graph has no outputs"
    sparse = [tensor.values.name for tensor in graph.sparse_initializer]
    yield from _order_problems(graph.node, [*inputs, *data, *sparse], outputs, "the graph")
    for node in graph.node:
        yield from _attribute_problems(node, in_function=False)
    yield from _function_problems(model)


def _order_problems(
    nodes: Sequence[onnx.NodeProto], given: Iterable[str], returned: Sequence[str], place: str
) -> Iterator[str]:
    """Every value is defined once, before it is used."""
    made = {name for node in nodes for name in node.output if name}
    known = set(given)
    for node in nodes:
        title = (
            f"node {node.name!r} ({node.op_type})"
            if node.name
            else f"a node of type {node.op_type or '(none)'!r}"
        )
        if not node.op_type:
            yield f"node {node.name!r} has no operator"
        for name in node.input:
            if name and name not in known:
                later = "is made by a later node, or by itself" if name in made else "is not defined anywhere"
                yield f"{title} reads {name!r}, which {later}"
        for name in node.output:
            if name in known:
                yield f"{title} defines {name!r}, which is defined already"
            if name:
                known.add(name)
    yield from (f"{place} returns {name!r}, which is not defined" for name in returned if name not in known)


def _attribute_problems(node: onnx.NodeProto, *, in_function: bool) -> Iterator[str]:
    title = f"node {node.name!r} ({node.op_type})" if node.name else f"a node of type {node.op_type!r}"
    names = Counter(attribute.name for attribute in node.attribute)
    yield from (f"{title} has attribute {name!r} {n} times" for name, n in names.items() if n > 1)
    for attribute in node.attribute:
        if not attribute.name:
            yield f"{title} has an attribute without a name"
        if attribute.ref_attr_name:
            if not in_function:
                yield f"attribute {attribute.name!r} of {title} refers to a function's, outside of one"
            continue
        wanted = _ATTRIBUTE_FIELDS.get(attribute.type)
        if wanted is None:
            yield f"attribute {attribute.name!r} of {title} has no type"
        filled = [f for f in _ATTRIBUTE_FIELDS.values() if _is_filled(attribute, f)]
        if wrong := [field for field in filled if field != wanted]:
            kind = _A.AttributeType.Name(attribute.type)
            yield f"attribute {attribute.name!r} of {title} is a {kind} and has {wrong[0]!r}"


def _is_filled(attribute: onnx.AttributeProto, field: str) -> bool:
    return attribute.HasField(field) if field in _SINGLE else len(getattr(attribute, field)) > 0


def _function_problems(model: onnx.ModelProto) -> Iterator[str]:
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    if len(functions) < len(model.functions):
        yield "two of its local functions have the same name"
    for function in model.functions:
        place = f"function {function.name!r}"
        yield from _order_problems(function.node, function.input, function.output, place)
        for node in function.node:
            yield from _attribute_problems(node, in_function=True)
    if functions:
        yield from _size_problems(model, functions)


def _size_problems(
    model: onnx.ModelProto, functions: dict[tuple[str, str, str], onnx.FunctionProto]
) -> Iterator[str]:
    """Functions that call themselves, and graphs that would be too large with every call inlined."""
    calls = {
        key: Counter(
            called for node in f.node if (called := (node.domain, node.op_type, node.overload)) in functions
        )
        for key, f in functions.items()
    }
    sizes: dict[tuple[str, str, str], int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            inside = sum(count * sizes[called] for called, count in calls[key].items())
            sizes[key] = min(len(functions[key].node) + inside, _MOST_NODES + 1)
    except CycleError as error:
        names = [key[1] for key in error.args[1]]
        yield f"its local functions call each other in a circle: {' -> '.join(names)}"
        return
    total = sum(sizes.get((n.domain, n.op_type, n.overload), 1) for n in model.graph.node)
    if total > _MOST_NODES:
        yield f"its graph has more than {_MOST_NODES} nodes once its local functions are inlined"
