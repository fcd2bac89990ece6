"""New operators in the place of matched ones: tensors to compute with, and the calls that add nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dace
import numpy as np
from dace.sdfg import nodes

from daceml.errors import UnsupportedProgramError
from daceml.onnx_ops.result_types import ResultType, result_types
from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class
from daceml.onnx_ops.schema.random_operators import draws
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network
from daceml.sdfg.sizes import Size, product, size
from daceml.transformations.rewriting.pattern import OperatorGraph

# Values that shape inference may look at
_SMALL_ELEMENTS = 64


class Value:
    """A tensor of a network.

    Attributes:
        array: its name in the SDFG.
    """

    def __init__(self, array: str, graph: OperatorGraph) -> None:
        self.array, self._graph = array, graph

    @property
    def graph(self) -> OperatorGraph:
        """Who writes and who reads it."""
        return self._graph

    @property
    def shape(self) -> tuple[Size, ...]:
        """Sizes; () for rank 0."""
        network = self._graph.network
        return (
            () if self.array in network.scalars else tuple(map(size, network.sdfg.arrays[self.array].shape))
        )

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> dace.typeclass:
        """Element type."""
        return self._graph.network.sdfg.arrays[self.array].dtype

    @property
    def size_bytes(self) -> Size:
        """Bytes of all elements."""
        return product(self.shape) * self.dtype.bytes

    @property
    def constant(self) -> np.ndarray | None:
        """The elements, where they are known."""
        return self._graph.network.constants.get(self.array)

    @property
    def weight(self) -> str | None:
        """Its key in the module's state, where it is a parameter or buffer."""
        return self._graph.network.weights.get(self.array)

    def __repr__(self) -> str:
        return f"{self.array}: {self.dtype.to_string()}{list(self.shape)}"


class Operator:
    """A matched node: attributes by name, `operands` and `results` as values."""

    def __init__(self, node: ONNXNode, graph: OperatorGraph) -> None:
        self.node, self._graph = node, graph

    @property
    def operands(self) -> list[Value | None]:
        """In the order of the schema, None for an absent one."""
        return [None if a is None else Value(a, self._graph) for a in self._graph.operands(self.node)]

    @property
    def results(self) -> list[Value | None]:
        """In the order of the schema."""
        return [None if a is None else Value(a, self._graph) for a in self._graph.results(self.node)]

    def __getattr__(self, attribute: str) -> Any:
        values = self.node.attribute_values()
        if attribute not in values:
            raise AttributeError(f"{self.node.schema.title} has no attribute {attribute!r}")
        return values[attribute]


class ReplacementOps:
    """`op.Name(operand, …, attribute=value)` adds one operator to the network and gives its result.

    Operands are values, numbers (of the first value's element type), arrays, lists of ints, or None.

    Keywords besides attributes: `results` (how many), `domain`, and `shape` and `dtype` where shape inference
    cannot tell them: of operators that ONNX does not have, unless the result takes a matched one's place.
    """

    def __init__(self, graph: OperatorGraph, origin: ONNXNode, name: str) -> None:
        self.graph, self.origin, self.name = graph, origin, name
        self.made: list[ONNXNode] = []
        self.constants: list[str] = []
        self.untyped: set[str] = set()

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        def call(
            *operands: Any,
            results: int = 1,
            domain: str = "",
            shape: Sequence[Size] | None = None,
            dtype: dace.typeclass | None = None,
            **attributes: Any,
        ) -> Value | tuple[Value, ...]:
            # where the operator has an attribute of that name, it is meant
            known = node_class(op_type, domain=domain).schema.attributes
            named = {"shape": shape, "dtype": dtype}
            attributes |= {
                name: value for name, value in named.items() if name in known and value is not None
            }
            shape, dtype = (None if name in known else value for name, value in named.items())  # pyright: ignore
            if dtype is not None and shape is None:
                raise UnsupportedProgramError(
                    f"op.{op_type} got an element type without a shape", where=f"rewrite {self.name}"
                )
            given = (
                None if shape is None else ResultType(shape=tuple(shape), dtype=dtype or self._type(operands))
            )
            found = self._add(op_type, domain, operands, results, given, attributes)
            return found[0] if results == 1 else found

        return call

    def _add(
        self,
        op_type: str,
        domain: str,
        operands: Sequence[Any],
        results: int,
        given: ResultType | None,
        attributes: dict[str, Any],
    ) -> tuple[Value, ...]:
        made = node_class(op_type, domain=domain)
        reads = [self._operand(operand, operands) for operand in operands]
        inputs = made.schema.connectors("inputs", [r is not None for r in reads])
        outputs = made.schema.connectors("outputs", [True] * results)
        if inputs is None or outputs is None:
            raise UnsupportedProgramError(
                f"{made.schema.title} does not take {len(reads)} operands and give {results} results",
                where=f"rewrite {self.name}",
            )
        node = made(
            inputs=[c for c in inputs if c is not None],
            outputs=[c for c in outputs if c is not None],
            onnx_name=f"{self.origin.onnx_name}/{self.name}",
            module_path=self.origin.module_path,
            source=self.origin.source,
            position=self.origin.position,
            **attributes,
        )
        types = [given] * results if given is not None else self._inferred(node, reads, results)
        state = self.graph.network.state
        state.add_node(node)
        for connector, read in zip(inputs, reads, strict=False):
            if connector is not None and read is not None:
                state.add_edge(self.graph.access[read.array], None, node, connector, self._whole(read.array))
        found: list[Value] = []
        for connector, known in zip(outputs, types, strict=True):
            array = self._array(known)
            state.add_edge(node, connector, self.graph.access[array], None, self._whole(array))
            found.append(Value(array, self.graph))
        self.graph.learn(node)
        self.made.append(node)
        return tuple(found)

    def _inferred(
        self, node: ONNXNode, reads: Sequence[Value | None], count: int
    ) -> Sequence[ResultType | None]:
        if any(r is not None and r.array in self.untyped for r in reads):
            return [None] * count
        types = [None if r is None else ResultType(shape=r.shape, dtype=r.dtype) for r in reads]
        values = {i: r.constant for i, r in enumerate(reads) if r is not None}
        small = {i: c for i, c in values.items() if c is not None and c.size <= _SMALL_ELEMENTS}
        return result_types(node, types, count, small)

    def _operand(self, operand: Any, operands: Sequence[Any]) -> Value | None:
        if operand is None or isinstance(operand, Value):
            return operand
        if isinstance(operand, (list, tuple)) and all(isinstance(n, int) for n in operand):
            return self.constant(np.array(operand, dtype=np.int64))
        if isinstance(operand, np.ndarray):
            return self.constant(operand)
        return self.constant(np.array(operand, dtype=BY_DACE_TYPE[self._type(operands)].numpy_type))

    def constant(self, value: np.ndarray) -> Value:
        """A tensor whose elements are known here."""
        network, dtypes = self.graph.network, {row.numpy_type: kind for kind, row in BY_DACE_TYPE.items()}
        shape = value.shape or (1,)
        name, _ = network.sdfg.add_array(
            f"{self._stem()}_constant", shape, dtypes[value.dtype], transient=False, find_new_name=True
        )
        network.constants[name] = value
        if value.ndim == 0:
            network.scalars |= {name}
        self.graph.access[name] = add_access(network.state, name)
        self.constants.append(name)
        return Value(name, self.graph)

    def _array(self, known: ResultType | None) -> str:
        network = self.graph.network
        shape = (1,) if known is None or not known.shape else known.shape
        name, _ = network.sdfg.add_transient(
            self._stem(), shape, dace.float32 if known is None else known.dtype, find_new_name=True
        )
        if known is None:
            self.untyped.add(name)
        elif not known.shape:
            network.scalars |= {name}
        self.graph.access[name] = add_access(network.state, name)
        return name

    def _stem(self) -> str:
        (first, *_) = self.graph.results(self.origin)
        return f"{first}_{self.name}"

    def _whole(self, array: str) -> dace.Memlet:
        return dace.Memlet.from_array(array, self.graph.network.sdfg.arrays[array])

    @staticmethod
    def _type(operands: Sequence[Any]) -> dace.typeclass:
        for operand in operands:
            if isinstance(operand, Value):
                return operand.dtype
        return dace.typeclass(np.float32)


def take_place(graph: OperatorGraph, old: str, new: str) -> None:
    """Let everything that reads an array read another one; the network's result stays where it is.

    Args:
        old: written by an operator that is about to go.
        new: of the same shape; written by an operator that reads no array of this name, or given.
    """
    network, state = graph.network, graph.network.state
    before, after = graph.access[old], graph.access[new]
    made = graph.writer.get(new)
    if made is not None and not graph.is_result(new) and network.sdfg.arrays[new].transient:
        # what writes the new array writes the old one instead
        for edge in list(state.in_edges(before)):
            state.remove_edge(edge)
        for edge in list(state.in_edges(after)):
            state.add_edge(edge.src, edge.src_conn, before, edge.dst_conn, _whole(network, old))
            state.remove_edge(edge)
        for edge in list(state.out_edges(after)):
            state.add_edge(before, edge.src_conn, edge.dst, edge.dst_conn, _whole(network, old))
            state.remove_edge(edge)
        graph.writer[old] = made
        _drop(graph, after)
        return
    if graph.is_result(old):
        identity = node_class("Identity")(inputs=["input"], outputs=["output"])
        for edge in list(state.in_edges(before)):
            state.remove_edge(edge)
        state.add_edge(after, None, identity, "input", _whole(network, new))
        state.add_edge(identity, "output", before, None, _whole(network, old))
        graph.learn(identity)
        return
    for edge in list(state.out_edges(before)):
        state.add_edge(after, edge.src_conn, edge.dst, edge.dst_conn, _whole(network, new))
        state.remove_edge(edge)


def remove_unread(graph: OperatorGraph, candidates: Sequence[ONNXNode], arrays: Sequence[str] = ()) -> None:
    """Remove those operators that nobody reads any more, with their arrays and constants of their own.

    What they alone read goes as well, but draws of random numbers stay: later draws follow them.

    Args:
        arrays: further ones that may not be read any more.
    """
    waiting = list(candidates)
    given = list(arrays)
    while waiting:
        node = waiting.pop()
        if not graph.holds(node):
            continue
        written = [a for a in graph.results(node) if a is not None]
        if any(graph.is_result(a) or graph.readers(a) for a in written if graph.writer.get(a) is node):
            continue
        read = [a for a in graph.operands(node) if a is not None]
        graph.forget(node)
        graph.network.state.remove_node(node)
        for array in written:
            if array in graph.access and not graph.network.state.degree(graph.access[array]):
                _drop(graph, graph.access[array])
        given += read
        writers = (graph.writer.get(a) for a in read)
        waiting += [above for above in writers if above is not None and not draws(above)]
    for array in dict.fromkeys(given):
        access = graph.access.get(array)
        if access is None or graph.network.state.degree(access):
            continue
        if array in graph.network.constants:
            _drop(graph, access)
        else:  # an input or a weight: it stays the caller's
            graph.network.state.remove_node(access)
            del graph.access[array]


def _drop(graph: OperatorGraph, access: nodes.AccessNode) -> None:
    network = graph.network
    network.state.remove_node(access)
    network.sdfg.remove_data(access.data, validate=False)
    network.constants.pop(access.data, None)
    network.scalars -= {access.data}
    del graph.access[access.data]


def _whole(network: Network, array: str) -> dace.Memlet:
    return dace.Memlet.from_array(array, network.sdfg.arrays[array])
