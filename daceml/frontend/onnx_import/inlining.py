"""Graphs that parts of bodies become nodes of: fresh names, known constants, declared types."""

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

STANDARD = ("", "ai.onnx")

Rules = Mapping[tuple[str, str], "Callable[[Graph, onnx.NodeProto], list[onnx.NodeProto] | None]"]
"""(domain, operator) -> the nodes that do what a node does, or None where it has to stay."""


@dataclass(frozen=True)
class _Scope:
    """Names of a body -> names of the graph around it; names that are not there are the graph's own."""

    names: Mapping[str, str]

    def of(self, name: str) -> str:
        return self.names.get(name, name)


class Graph:
    """A graph whose nodes are replaced by others.

    Attributes:
        opset: that the model was made for, where it was converted since.
        rules: what replaces a node, by domain and operator.
        changed: whether a node was replaced.
        types: of the values that are declared, by name.
        claims: types that results of bodies are declared to have, which become the graph's.
        added: nodes that were made.
    """

    def __init__(self, model: onnx.ModelProto, rules: Rules, opset: int | None) -> None:
        graph = model.graph
        self.opset = opset
        self.rules = rules
        self.changed = False
        self.added = 0
        self.claims: list[onnx.ValueInfoProto] = []
        self.constants: dict[str, np.ndarray] = {}
        fed = {value.name for value in graph.input}
        self.initializers = {t.name: t for t in graph.initializer if t.name not in fed}
        self.types = {v.name: v.type for v in (*graph.value_info, *graph.input, *graph.output)}
        self.types |= {t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer}
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

    def claim(self, name: str, kind: onnx.TypeProto) -> None:
        """Declare the type of a value that is made here; importing compares it with what is made."""
        self.types[name] = kind
        self.claims.append(onnx.ValueInfoProto(name=name, type=kind))

    def value_of(self, name: str) -> np.ndarray | None:
        """The value of a name, where it is a constant of one element."""
        if name in self.initializers:
            tensor = self.initializers[name]
            small = int(np.prod(tensor.dims)) == 1 and tensor.data_location != onnx.TensorProto.EXTERNAL
            return numpy_helper.to_array(tensor) if small else None
        return self.constants.get(name)

    def expanded(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The nodes, those that a rule knows replaced by what they do."""
        found: list[onnx.NodeProto] = []
        for node in nodes:
            rule = self.rules.get(("" if node.domain in STANDARD else node.domain, node.op_type))
            made = None if rule is None else rule(self, node)
            if made is None:
                self._remember(node)
                found.append(node)
            else:
                self.changed = True
                self.added += len(made)
                found += self.expanded(made)
        return found

    def _remember(self, node: onnx.NodeProto) -> None:
        if node.op_type == "Constant" and node.domain in STANDARD and len(node.attribute) == 1:
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


def sizes(kind: onnx.TypeProto | None) -> list[int | None] | None:
    """The sizes that a type says, None for each that it leaves open; None where it leaves open the rank."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in kind.tensor_type.shape.dim]


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


def attribute_of(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default


def named(results: Sequence[str], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Results under the names that the node gives them."""
    pairs = zip(results, outputs, strict=True)
    return [helper.make_node("Identity", [result], [output]) for result, output in pairs if output]
