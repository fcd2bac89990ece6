"""Patterns of operators: what a rewrite looks for, written as the calls that would make it.

`op.Relu(op.Conv(x, w, name="conv"), name="relu")` is a Relu of a Conv of anything. `PatternOps` makes such
terms, `OperatorGraph` answers who writes and who reads an array, `matches` says whether a term stands at a
node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dace.sdfg import nodes

from daceml.errors import UnsupportedProgramError
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class
from daceml.onnx_ops.schema.operands import operands
from daceml.sdfg.network import Network

# Operators of two operands that may stand in either order
COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})


@dataclass(frozen=True, eq=False)
class Anything:
    """Any array; the same one wherever the name stands."""

    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorPattern:
    """One operator.

    Attributes:
        operands: in the order of the schema; None is absent. Further operands of a node must be absent, too.
        attributes: what the node has to have.
        name: by which `check` and `rewrite` get it.
    """

    op_type: str
    domain: str
    operands: tuple[Term, ...]
    attributes: Mapping[str, Any]
    name: str


@dataclass(frozen=True, eq=False)
class ResultOf:
    """One result of an operator."""

    operator: OperatorPattern
    place: int = 0


Term = Anything | ResultOf | float | int | bool | None
"""A number is a constant of one element with this value."""


class PatternOps:
    """`op.Name(operand, …, name="…", attribute=value)` is the pattern of one operator.

    Args:
        rewrite: whose pattern it is, for errors.
    """

    def __init__(self, rewrite: str = "") -> None:
        self._rewrite = rewrite

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        def pattern(
            *operands: Term, name: str = "", results: int = 1, domain: str = "", **attributes: Any
        ) -> ResultOf | tuple[ResultOf, ...]:
            self._check(op_type, domain, len(operands), results, attributes)
            operator = OperatorPattern(
                op_type=op_type, domain=domain, operands=operands, attributes=attributes, name=name
            )
            found = tuple(ResultOf(operator, place) for place in range(results))
            return found[0] if results == 1 else found

        return pattern

    def _check(
        self, op_type: str, domain: str, operands: int, results: int, attributes: Mapping[str, Any]
    ) -> None:
        """Refuse what no operator can be: it would silently match nothing.

        Raises:
            UnknownOperatorError: there is no such operator.
            UnsupportedProgramError: it has no such attribute, or not so many operands or results.
        """
        schema = node_class(op_type, domain=domain).schema
        wrong = ""
        if unknown := sorted(attributes.keys() - schema.attributes.keys()):
            has = ", ".join(sorted(schema.attributes)) or "none"
            wrong = f"it has no attribute {unknown[0]!r}; it has {has}"
        elif operands > len(schema.inputs) and not any(i.option == "variadic" for i in schema.inputs):
            wrong = f"it takes at most {len(schema.inputs)} operands, not {operands}"
        elif results > len(schema.outputs) and not any(o.option == "variadic" for o in schema.outputs):
            wrong = f"it has at most {len(schema.outputs)} results, not {results}"
        if wrong:
            raise UnsupportedProgramError(
                f"the pattern of {self._rewrite or 'a rewrite'} matches nothing",
                where=f"op.{op_type}",
                why=wrong,
                fix="write the pattern as the operator is called",
            )


class OperatorGraph:
    """Who writes and who reads the arrays of a network; kept right by `forget` and `learn`."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.by_type: dict[tuple[str, str], dict[ONNXNode, None]] = {}
        self.writer: dict[str, ONNXNode] = {}
        self.access: dict[str, nodes.AccessNode] = {}
        for node in network.state.nodes():
            if isinstance(node, ONNXNode):
                self.learn(node)
            elif isinstance(node, nodes.AccessNode):
                self.access[node.data] = node

    def learn(self, node: ONNXNode) -> None:
        """Take a node in."""
        self.by_type.setdefault((node.domain, node.op_type), {})[node] = None
        for array in self.results(node):
            if array is not None:
                self.writer[array] = node

    def forget(self, node: ONNXNode) -> None:
        """Leave a node out that is about to go."""
        del self.by_type[node.domain, node.op_type][node]
        for array in self.results(node):
            if array is not None and self.writer.get(array) is node:
                del self.writer[array]

    def holds(self, node: ONNXNode) -> bool:
        """Whether a node is in the network."""
        return node in self.by_type.get((node.domain, node.op_type), {})

    def operands(self, node: ONNXNode) -> list[str | None]:
        """Arrays that a node reads, in the order of the schema; absent ones at the end are left out."""
        return _ordered(operands(node, self.network.state, self.network.sdfg).inputs)

    def results(self, node: ONNXNode) -> list[str | None]:
        """Arrays that a node writes, in the order of the schema."""
        return _ordered(operands(node, self.network.state, self.network.sdfg).outputs)

    def readers(self, array: str) -> list[nodes.Node]:
        """Nodes that read an array."""
        return [edge.dst for edge in self.network.state.out_edges(self.access[array])]

    def is_result(self, array: str) -> bool:
        """Whether an array is the network's: a result, or the new value of a buffer."""
        network = self.network
        return array in network.outputs or array in network.mutations


def _ordered(sides: Mapping[str, Any]) -> list[str | None]:
    found: list[str | None] = []
    for side in sides.values():
        found += list(side) if isinstance(side, tuple) else [side]
    while found and found[-1] is None:
        found.pop()
    return found


@dataclass(frozen=True, kw_only=True)
class Match:
    """Where a pattern stands.

    Attributes:
        arrays: name of a variable -> array.
        operators: operator of the pattern -> node.
    """

    arrays: Mapping[str, str] = field(default_factory=dict[str, str])
    operators: Mapping[OperatorPattern, ONNXNode] = field(default_factory=dict[OperatorPattern, ONNXNode])

    def named(self) -> dict[str, ONNXNode]:
        """The nodes whose patterns have names."""
        return {pattern.name: node for pattern, node in self.operators.items() if pattern.name}


def matches(root: OperatorPattern, node: ONNXNode, graph: OperatorGraph) -> Match | None:
    """The first way in which a pattern stands at a node, whose results are those of its root."""
    return next(_at(root, node, graph, Match()), None)


def _at(pattern: OperatorPattern, node: ONNXNode, graph: OperatorGraph, match: Match) -> Iterator[Match]:
    if pattern in match.operators:
        if match.operators[pattern] is node:
            yield match
        return
    if (node.domain, node.op_type) != (pattern.domain, pattern.op_type) or node.implementation:
        return
    values = node.attribute_values() if pattern.attributes else {}
    if any(_plain(values.get(name)) != _plain(value) for name, value in pattern.attributes.items()):
        return
    given = graph.operands(node)
    wanted = list(pattern.operands)
    if len(given) > len(wanted):
        return
    given += [None] * (len(wanted) - len(given))
    taken = Match(arrays=match.arrays, operators={**match.operators, pattern: node})
    orders = [given]
    if pattern.op_type in COMMUTATIVE and not pattern.domain and len(given) == 2:
        orders.append(given[::-1])
    for order in orders:
        yield from _all(list(zip(wanted, order, strict=True)), graph, taken)


def _all(pairs: list[tuple[Term, str | None]], graph: OperatorGraph, match: Match) -> Iterator[Match]:
    if not pairs:
        yield match
        return
    (term, array), *others = pairs
    for found in _operand(term, array, graph, match):
        yield from _all(others, graph, found)


def _operand(term: Term, array: str | None, graph: OperatorGraph, match: Match) -> Iterator[Match]:
    if term is None or array is None:
        if term is None and array is None:
            yield match
        return
    match term:
        case Anything(name=name):
            if match.arrays.get(name, array) == array:
                yield Match(arrays={**match.arrays, name: array}, operators=match.operators)
        case ResultOf(operator=operator, place=place):
            node = graph.writer.get(array)
            if node is not None and place < len(results := graph.results(node)) and results[place] == array:
                yield from _at(operator, node, graph, match)
        case number:
            constant = graph.network.constants.get(array)
            if constant is not None and constant.size == 1 and _is_number(constant.reshape(()), number):
                yield match


def _is_number(constant: np.ndarray, number: float) -> bool:
    """Whether a constant is a number; 0.1 is one of float32, too."""
    if constant.dtype == np.bool_ or isinstance(number, bool):
        return constant.dtype == np.bool_ and isinstance(number, bool) and bool(constant) == number
    whole = np.issubdtype(constant.dtype, np.integer)
    return bool(constant == number) if whole else bool(constant == np.asarray(number).astype(constant.dtype))


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
