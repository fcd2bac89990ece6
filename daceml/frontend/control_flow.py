"""Control flow that is known before a model runs: constant conditions, loops with constant counts.

Their bodies become nodes of the graph around them, so that they are lowered, fused and differentiated like
any others. What depends on data stays, and makes the whole model run outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MOST_TRIPS = 64
"""A loop of more steps stays a loop: its code would be repeated as often."""

MOST_NODES = 4096
"""Nor do nodes that loops within loops would become."""

_STANDARD = ("", "ai.onnx")
# Its Scan has a batch dimension before
_SCAN_OPSET = 9


def inline_control_flow(model: onnx.ModelProto, *, opset: int | None = None) -> onnx.ModelProto:
    """The model without the control flow whose way is known; the same object where there is none.

    Args:
        model: of opset 13 or newer.
        opset: that it was made for, where it was converted since: an old Scan has other shapes.
    """
    if not any(node.op_type in _EXPANSIONS and node.domain in _STANDARD for node in model.graph.node):
        return model
    graph = _Graph(model.graph, opset)
    nodes = graph.expanded(model.graph.node)
    if not graph.changed:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


@dataclass(frozen=True)
class _Scope:
    """Names of a body -> names of the graph around it; names that are not there are the graph's own."""

    names: Mapping[str, str]

    def of(self, name: str) -> str:
        return self.names.get(name, name)


class _Graph:
    def __init__(self, graph: onnx.GraphProto, opset: int | None) -> None:
        self.opset = opset
        self.changed = False
        self.added = 0
        self.constants: dict[str, np.ndarray] = {}
        fed = {value.name for value in graph.input}
        self.initializers = {t.name: t for t in graph.initializer if t.name not in fed}
        self.shapes = {v.name: _sizes(v) for v in (*graph.value_info, *graph.input, *graph.output)}
        self.shapes |= {t.name: list(t.dims) for t in graph.initializer}
        self.taken = set(_names_in(graph))

    def fresh(self, name: str) -> str:
        """A name that the model does not have."""
        number = 0
        while (made := f"{name}__{number}") in self.taken:
            number += 1
        self.taken.add(made)
        return made

    def constant(self, array: Any, dtype: Any) -> tuple[onnx.NodeProto, str]:
        """A node that gives a value, and the value's name."""
        name = self.fresh("step")
        value = np.asarray(array, dtype=dtype)
        self.constants[name] = value
        tensor = numpy_helper.from_array(value, name)
        return helper.make_node("Constant", [], [name], value=tensor), name

    def value_of(self, name: str) -> np.ndarray | None:
        """The value of a name, where it is a constant of one element."""
        if name in self.initializers:
            tensor = self.initializers[name]
            small = int(np.prod(tensor.dims)) == 1 and tensor.data_location != onnx.TensorProto.EXTERNAL
            return numpy_helper.to_array(tensor) if small else None
        return self.constants.get(name)

    def expanded(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The nodes, those of known control flow replaced by what they do."""
        found: list[onnx.NodeProto] = []
        for node in nodes:
            expansion = _EXPANSIONS.get(node.op_type) if node.domain in _STANDARD else None
            made = None if expansion is None else expansion(self, node)
            if made is None:
                self._remember(node)
                found.append(node)
            else:
                self.changed = True
                self.added += len(made)
                found += self.expanded(made)
        return found

    def _remember(self, node: onnx.NodeProto) -> None:
        if node.op_type == "Constant" and node.domain in _STANDARD and len(node.attribute) == 1:
            attribute = node.attribute[0]
            if attribute.name == "value" and int(np.prod(attribute.t.dims)) == 1:
                self.constants[node.output[0]] = numpy_helper.to_array(attribute.t)
            elif attribute.name == "value_int":
                self.constants[node.output[0]] = np.asarray(attribute.i)

    def fits(self, body: onnx.GraphProto, trips: int) -> bool:
        """Whether a body may be repeated that often."""
        nodes = len(body.node) + len(body.input) + len(body.output)
        return 0 < trips <= MOST_TRIPS and self.added + trips * nodes <= MOST_NODES

    def held(self, body: onnx.GraphProto) -> tuple[list[onnx.NodeProto], dict[str, str]]:
        """Nodes that give a body's initializers, once for all steps, and their names there and here."""
        names = {tensor.name: self.fresh(tensor.name) for tensor in body.initializer}
        nodes = [helper.make_node("Constant", [], [names[t.name]], value=t) for t in body.initializer]
        return nodes, names

    def body(self, body: onnx.GraphProto, given: Mapping[str, str]) -> tuple[list[onnx.NodeProto], list[str]]:
        """A body's nodes under fresh names, and the names of its results."""
        made = {name: self.fresh(name) for node in body.node for name in node.output if name}
        scope = _Scope({**given, **made})
        return [_renamed(node, scope) for node in body.node], [scope.of(v.name) for v in body.output]


def _names_in(graph: onnx.GraphProto) -> Iterable[str]:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from node.input
        yield from node.output
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _names_in(attribute.g)


def _sizes(value: onnx.ValueInfoProto) -> list[int | None] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]


def _renamed(node: onnx.NodeProto, scope: _Scope) -> onnx.NodeProto:
    """A copy of a node; bodies in it see the same names, but for those that they define themselves."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [scope.of(name) for name in node.input]
    made.output[:] = [scope.of(name) for name in node.output]
    for attribute in made.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graph = attribute.g
            own = {v.name for v in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            inside = _Scope({old: new for old, new in scope.names.items() if old not in own})
            nodes = [_renamed(inner, inside) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
            for value in graph.output:
                value.name = inside.of(value.name)
    return made


def _attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default


def _named(results: Sequence[str], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Results under the names that the node gives them."""
    pairs = zip(results, outputs, strict=True)
    return [helper.make_node("Identity", [result], [output]) for result, output in pairs if output]


def _if(graph: _Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    condition = graph.value_of(node.input[0])
    if condition is None:
        return None
    branch = _attribute(node, "then_branch" if bool(condition) else "else_branch")
    held, names = graph.held(branch)
    nodes, results = graph.body(branch, names)
    return [*held, *nodes, *_named(results, node.output)]


def _loop(graph: _Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    body: onnx.GraphProto = _attribute(node, "body")
    trips = graph.value_of(node.input[0]) if node.input and node.input[0] else None
    condition = graph.value_of(node.input[1]) if len(node.input) > 1 and node.input[1] else np.True_
    if trips is None or condition is None or not bool(condition) or not _goes_on(body):
        return None
    if not graph.fits(body, int(trips)):
        return None
    states = list(node.input[2:])
    stacks: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
    nodes, held = graph.held(body)
    inputs = [value.name for value in body.input]
    for trip in range(int(trips)):
        made, number = graph.constant(trip, np.int64)
        going, goes_on = graph.constant(True, np.bool_)
        given = dict(zip(inputs, [number, goes_on, *states], strict=True))
        inner, results = graph.body(body, held | given)
        nodes += [made, going, *inner]
        states = results[1 : 1 + len(states)]
        for stack, result in zip(stacks, results[1 + len(states) :], strict=True):
            stack.append(result)
    nodes += _named(states, node.output[: len(states)])
    for stack, output in zip(stacks, node.output[len(states) :], strict=False):
        nodes += _stacked(graph, stack, output, 0)
    return nodes


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether a loop's condition is certainly true after each step."""
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while (maker := makers.get(name)) is not None and maker.op_type == "Identity":
        name = maker.input[0]
    if maker is None:
        values = {t.name: t for t in body.initializer}
        return name == body.input[1].name or (name in values and bool(numpy_helper.to_array(values[name])))
    value = _attribute(maker, "value")
    return maker.op_type == "Constant" and value is not None and bool(numpy_helper.to_array(value))


def _scan(graph: _Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    body: onnx.GraphProto = _attribute(node, "body")
    count = int(_attribute(node, "num_scan_inputs", 0))
    states, sources = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
    stacked = len(body.output) - len(states)
    axes = list(_attribute(node, "scan_input_axes", [0] * count))
    backwards = list(_attribute(node, "scan_input_directions", [0] * count))
    shapes = [graph.shapes.get(source) for source in sources]
    if graph.opset is not None and graph.opset < _SCAN_OPSET:
        return None
    if not sources or any(shape is None for shape in shapes):
        return None
    sizes = {shape[axis] for shape, axis in zip(shapes, axes, strict=True) if shape is not None}
    trips = sizes.pop()
    if sizes or trips is None or not graph.fits(body, trips):
        return None
    nodes, held = graph.held(body)
    inputs = [value.name for value in body.input]
    stacks: list[list[str]] = [[] for _ in range(stacked)]
    for trip in range(trips):
        parts: list[str] = []
        for source, axis, back in zip(sources, axes, backwards, strict=True):
            made, number = graph.constant(trips - 1 - trip if back else trip, np.int64)
            parts.append(graph.fresh(source))
            nodes += [made, helper.make_node("Gather", [source, number], [parts[-1]], axis=axis)]
        inner, results = graph.body(body, held | dict(zip(inputs, [*states, *parts], strict=True)))
        nodes += inner
        states = results[: len(states)]
        for stack, result in zip(stacks, results[len(states) :], strict=True):
            stack.append(result)
    nodes += _named(states, node.output[: len(states)])
    axes = list(_attribute(node, "scan_output_axes", [0] * stacked))
    backwards = list(_attribute(node, "scan_output_directions", [0] * stacked))
    for stack, output, axis, back in zip(stacks, node.output[len(states) :], axes, backwards, strict=False):
        nodes += _stacked(graph, stack[::-1] if back else stack, output, axis)
    return nodes


def _stacked(graph: _Graph, values: Sequence[str], output: str, axis: int) -> list[onnx.NodeProto]:
    """Values side by side along a new axis."""
    if not output:
        return []
    made, place = graph.constant([axis], np.int64)
    wide = [graph.fresh(value) for value in values]
    nodes = [helper.make_node("Unsqueeze", [v, place], [w]) for v, w in zip(values, wide, strict=True)]
    return [made, *nodes, helper.make_node("Concat", wide, [output], axis=axis)]


_EXPANSIONS: dict[str, Callable[[_Graph, onnx.NodeProto], list[onnx.NodeProto] | None]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
