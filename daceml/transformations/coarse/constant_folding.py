"""fold_constants: what takes roots, powers, quotients or exponentials of constants alone is computed once.

f(constants)   ->   a constant

Elements are computed in float64 and rounded once to their own type. What is as cheap as reading it stays: a
mask made of positions is computed in the loop that reads it. Weights are no constants: they may change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE, BY_ONNX_CODE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_node
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "fold_constants"
# Constants are part of the program: 256 KiB of float32
_MOST_ELEMENTS = 65_536

Function = Callable[..., np.ndarray]
_DEAR: dict[str, Function] = {
    "Cos": np.cos,
    "Div": np.divide,
    "Exp": np.exp,
    "Log": np.log,
    "Pow": np.power,
    "Reciprocal": np.reciprocal,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
}
"""Of floating-point operands only."""
_CHEAP: dict[str, Function] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Where": np.where,
}
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def fold_constants(network: Network) -> int:
    """Compute what depends on constants only. Mutates the network, which is not lowered yet.

    Returns:
        how many constants that made.
    """
    folding = _Folding(network)
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        folding.visit(node)
    made = folding.replace()
    network.sdfg.reset_cfg_list()
    network.passes.append(
        PassRecord(
            level="coarse",
            name=NAME,
            applied={"constants": made} if made else {},
            refused=tuple(folding.refused),
        )
    )
    return made


class _Folding:
    """Values of a network that are known, and where they are wanted."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph = network, OperatorGraph(network)
        self.values: dict[str, np.ndarray] = {}
        self.nodes: dict[ONNXNode, str] = {}
        self.dear: set[str] = set()
        self.refused: list[Refusal] = []

    def visit(self, node: ONNXNode) -> None:
        """Compute the result of a node whose operands are known."""
        if node.domain or node.implementation or node.shapes_declared:
            return
        operands = [a for a in self.graph.operands(node) if a is not None]
        results = [a for a in self.graph.results(node) if a is not None]
        if len(results) != 1 or not all(self._is_known(a) for a in operands):
            return
        result = Value(results[0], self.graph)
        sizes = [n for n in result.shape if isinstance(n, int)]
        if len(sizes) < result.rank or np.prod(sizes, dtype=float) > _MOST_ELEMENTS:
            return
        value = _evaluated(node, [self._value(a) for a in operands], result)
        if value is not None:
            self.values[result.array], self.nodes[node] = value, result.array
            if node.op_type in _DEAR or not self.dear.isdisjoint(operands):
                self.dear.add(result.array)

    def replace(self) -> int:
        """Put constants where operators that stay read known values; how many."""
        wanted = [(node, array) for node, array in self.nodes.items() if self._is_read(array)]
        made = 0
        for node, array in wanted:
            if (reason := self._refusal(array)) is not None:
                self._refuse(node, array, reason)
                continue
            constant = ReplacementOps(self.graph, node, NAME).constant(self.values[array])
            take_place(self.graph, array, constant.array)
            remove_unread(self.graph, [node])
            made += 1
        return made

    def _is_known(self, array: str) -> bool:
        return array in self.values or array in self.network.constants

    def _value(self, array: str) -> np.ndarray:
        if array in self.values:
            return self.values[array]
        value = self.network.constants[array]
        return value.reshape(()) if array in self.network.scalars else value

    def _is_read(self, array: str) -> bool:
        return self.graph.is_result(array) or any(
            reader not in self.nodes for reader in self.graph.readers(array)
        )

    def _refusal(self, array: str) -> str | None:
        if self.graph.is_result(array):
            return "it is a result of the network, so a constant would have to be copied"
        if array not in self.dear and self.values[array].size > 1:
            return "computing it costs no more than reading it"
        return None

    def _refuse(self, node: ONNXNode, array: str, reason: str) -> None:
        self.refused.append(refused_node(node, reason, Value(array, self.graph).size_bytes))


def _evaluated(node: ONNXNode, operands: list[np.ndarray], result: Value) -> np.ndarray | None:
    """The value of a result; None where that of another implementation might differ."""
    kind, shape = BY_DACE_TYPE[result.dtype].numpy_type, tuple(map(int, result.shape))
    if any(value.dtype.kind not in "fiub" for value in operands) or kind.kind not in "fiub":
        return None
    with np.errstate(all="ignore"):
        found = _computed(node, operands, shape)
    if found is None or found.shape != shape:
        return None
    whole = found.dtype.kind == "f" and kind.kind != "f"
    return None if whole else np.ascontiguousarray(found.astype(kind)).reshape(shape)


def _computed(node: ONNXNode, operands: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray | None:
    attributes: dict[str, Any] = node.attribute_values()
    match node.op_type, operands:
        case name, _ if name in _VIEWS:
            return operands[0].reshape(shape)
        case "Identity" | "Cast", [x]:
            return x if attributes.get("to") is None or _holds(x, attributes["to"]) else None
        case "Expand", [x, _]:
            return np.broadcast_to(x, shape)
        case "Transpose", [x]:
            return np.transpose(x, attributes["perm"])
        case "Concat", _:
            return np.concatenate(operands, axis=attributes["axis"])
        case "ConstantOfShape", [_]:
            given = attributes["value"]
            return np.full(shape, np.float32(0) if given is None else given.reshape(()))
        case "Range", [start, limit, delta] if start.dtype.kind == "i" and delta != 0:
            found = range(int(start), int(limit), int(delta))
            return np.array(found, dtype=start.dtype) if (len(found),) == shape else None
        case name, _ if name in _CHEAP:
            return np.asarray(_CHEAP[name](*map(_wide, operands)))
        case name, _ if name in _DEAR and all(x.dtype.kind == "f" for x in operands):
            return np.asarray(_DEAR[name](*map(_wide, operands)))
        case _:
            return None


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _holds(x: np.ndarray, code: int) -> bool:
    """Whether a cast is the same on every machine: C++ leaves open what a float beyond all integers is."""
    kind = BY_ONNX_CODE[code].numpy_type.kind if code in BY_ONNX_CODE else ""
    return kind == "f" or (kind in "iub" and x.dtype.kind in "iub")
