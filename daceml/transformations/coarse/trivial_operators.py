"""remove_trivial_operators: what gives its operand unchanged, bit by bit, and pairs that one can do.

Cast(x, its own type), Transpose(x, in order), Reshape(x, its own shape), Pad(x, 0), Slice(x, all),
Expand(x, its own shape), AveragePool 1x1(x), x * 1, x / 1, x - 0, x ** 1, …   ->   x
Transpose(Transpose(x)), Reshape(Reshape(x)), Cast(Cast(x, wider), type)       ->   one of them, or x
Einsum(x, ...ij->...ji)                                                        ->   Transpose(x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dace
import numpy as np
from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.native.contraction import einsum_terms
from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Tensor
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scalar import FLOATS
from daceml.transformations.coarse.transpositions import order_of
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_result
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "remove_trivial_operators"
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
# type -> types that hold each of its values
_WIDER: dict[Any, tuple[Any, ...]] = {
    dace.float16: (dace.float32, dace.float64),
    dace.bfloat16: (dace.float32, dace.float64),
    dace.float32: (dace.float64,),
    dace.int8: (dace.int16, dace.int32, dace.int64),
    dace.int16: (dace.int32, dace.int64),
    dace.int32: (dace.int64,),
    dace.uint8: (dace.int16, dace.int32, dace.int64),
}


def remove_trivial_operators(network: Network) -> int:
    """Remove operators whose results their operands are. Mutates the network, which is not lowered yet.

    Returns:
        how many operators went.
    """
    removal = _Removal(network)
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        removal.visit(node)
    network.sdfg.reset_cfg_list()
    network.passes.append(
        PassRecord(level="coarse", name=NAME, applied=dict(removal.counts), refused=tuple(removal.refused))
    )
    return sum(removal.counts.values())


def _is_number(operand: Tensor | None, number: float) -> bool:
    """Whether an operand is a constant of one element with this value; -0.0 is not 0.0."""
    value = None if operand is None else operand.value
    if value is None or value.size != 1:
        return False
    element = float(value.reshape(()))
    return element == number and not (number == 0 and math.copysign(1.0, element) < 0)


def _all(values: Any, number: int) -> bool:
    return values is None or bool(np.all(np.asarray(values) == number))


def _is_constant(operand: Tensor | None, number: int) -> bool:
    return operand is None or (operand.value is not None and _all(operand.value, number))


def _in_order(data: Tensor, perm: tuple[int, ...] | None) -> bool:
    order = tuple(range(data.rank))[::-1] if perm is None else perm
    moved = [d for d in order if not same(data.shape[d], 1)]
    return moved == sorted(moved)


def _one_element(kernel_shape: Any, strides: Any, pads: Any) -> bool:
    return _all(kernel_shape, 1) and _all(strides, 1) and _all(pads, 0)


# operator -> whether its result is its operand, where shape and type are those of the operand
_TRIVIAL: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(("Cast", "CastLike", "Expand", "Identity", "Tile", *_VIEWS), lambda: True),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), lambda data_0: len(data_0) == 1),
    **dict.fromkeys(("AveragePool", "MaxPool"), _one_element),
    "Concat": lambda inputs: len(inputs) == 1,
    "Div": lambda B: _is_number(B, 1),  # noqa: N803
    "Dropout": lambda training_mode: _is_constant(training_mode, 0),
    "Mul": lambda A, B: _is_number(A, 1) or _is_number(B, 1),  # noqa: N803
    "Pad": lambda pads: pads is not None and _is_constant(pads, 0),
    "Pow": lambda Y: _is_number(Y, 1),  # noqa: N803
    "Slice": lambda steps: _is_constant(steps, 1),
    "Sub": lambda B: _is_number(B, 0),  # noqa: N803
    "Transpose": _in_order,
}


class _Removal:
    """One way through a network, operands before what reads them."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph = network, OperatorGraph(network)
        self.counts: dict[str, int] = {}
        self.refused: list[Refusal] = []

    def visit(self, node: ONNXNode) -> None:
        """Let the readers of a trivial operator read its operand, and join a pair."""
        if node.domain or node.implementation or node.shapes_declared:
            return
        if node.op_type == "Einsum":
            transpose = self._transposed(node)
            if transpose is None:
                return
            node = transpose
        if self._is_trivial(node):
            self._replace(node, self._source(node))
            return
        before = self.graph.writer.get(self._first(node) or "")
        if before is None or before.domain or before.implementation or before.shapes_declared:
            return
        pair = {node.op_type, before.op_type}
        if not (pair <= _VIEWS or pair in ({"Transpose"}, {"Cast"})):
            return
        if (reason := self._kept(before)) is not None:
            if pair <= _VIEWS:
                return  # both are views, which cost nothing
            self._refuse(node, reason)
        elif pair <= _VIEWS:
            self._join_views(node, before)
        elif pair == {"Transpose"}:
            self._join_transposes(node, before)
        else:
            self._join_casts(node, before)

    def _transposed(self, node: ONNXNode) -> ONNXNode | None:
        """An Einsum that only reorders its operand, as a Transpose."""
        (source, *others) = (Value(a, self.graph) for a in self.graph.operands(node) if a is not None)
        (result,) = (Value(a, self.graph) for a in self.graph.results(node) if a is not None)
        if others:
            return None
        ((term,), target) = einsum_terms(node.attribute_values()["equation"], [source.rank])
        if sorted(set(term)) != sorted(target) or len(term) != len(target):
            return None
        order = [term.index(label) for label in target]
        self._put(node, lambda op: op.Transpose(source, perm=order, shape=result.shape))
        return self.graph.writer[result.array]

    def _is_trivial(self, node: ONNXNode) -> bool:
        condition = _TRIVIAL.get(node.op_type)
        if condition is None:
            return False
        results = [a for a in self.graph.results(node) if a is not None]
        wanted = [a for a in results if self.graph.is_result(a) or self.graph.readers(a)]
        if wanted != results[:1] or self._first(node) is None:
            return False
        source, result = Value(self._source(node), self.graph), Value(results[0], self.graph)
        if source.shape != result.shape or source.dtype != result.dtype:
            return False
        return bool(bind(node, self.network).call_by_name(condition))

    def _source(self, node: ONNXNode) -> str:
        first = self._first(node)
        assert first is not None, "a trivial operator has an operand"
        return first

    def _first(self, node: ONNXNode) -> str | None:
        """The operand that an operator may give: of a product with 1, the other one."""
        operands = self.graph.operands(node)
        if node.op_type == "Mul" and self._is_one(operands[0]):
            return operands[1]
        return operands[0] if operands else None

    def _is_one(self, array: str | None) -> bool:
        known = self.network.constants.get(array or "")
        return known is not None and known.size == 1 and bool(np.all(known == 1))

    def _replace(self, node: ONNXNode, new: str) -> None:
        """Let what reads the result of a node read another array, unless that would be a copy."""
        old = next(a for a in self.graph.results(node) if a is not None)
        movable = new in self.graph.writer and not self.graph.is_result(new)
        if self.graph.is_result(old) and not movable:
            if node.op_type != "Identity":
                self._refuse(node, "its operand is not the network's own, so its result has to be a copy")
            return
        take_place(self.graph, old, new)
        remove_unread(self.graph, [node])
        self._count(f"{node.op_type} of nothing to do")

    def _kept(self, node: ONNXNode) -> str | None:
        """Why the first of a pair stays, which makes joining it useless, or another rounding."""
        (array,) = [a for a in self.graph.results(node) if a is not None]
        if self.graph.is_result(array):
            return f"the network returns the result of {node.op_type}"
        if len(self.graph.readers(array)) > 1:
            return f"the result of {node.op_type} has another reader"
        return None

    def _join_views(self, node: ONNXNode, before: ONNXNode) -> None:
        source = Value(self._source(before), self.graph)
        (result,) = (Value(a, self.graph) for a in self.graph.results(node) if a is not None)
        symbolic = [d for d, n in enumerate(result.shape) if not isinstance(n, int)]
        if len(symbolic) > 1 or 0 in (*source.shape, *result.shape):
            self._refuse(node, "several sizes of its result are symbolic, or one is 0")
        elif source.shape == result.shape and source.dtype == result.dtype:
            self._replace(node, source.array)
        elif result.shape:
            sizes = [n if isinstance(n, int) else -1 for n in result.shape]
            self._put(node, lambda op: op.Reshape(source, sizes, shape=result.shape))

    def _join_transposes(self, node: ONNXNode, before: ONNXNode) -> None:
        source = Value(self._source(before), self.graph)
        first, second = (order_of(n, source.rank) for n in (before, node))
        order = [first[d] for d in second]
        if order == sorted(order):
            self._replace(node, source.array)
            return
        (result,) = (Value(a, self.graph) for a in self.graph.results(node) if a is not None)
        self._put(node, lambda op: op.Transpose(source, perm=order, shape=result.shape))

    def _join_casts(self, node: ONNXNode, before: ONNXNode) -> None:
        source, middle = Value(self._source(before), self.graph), Value(self._source(node), self.graph)
        (result,) = (Value(a, self.graph) for a in self.graph.results(node) if a is not None)
        if middle.dtype not in _WIDER.get(source.dtype, ()):
            names = f"{middle.dtype.to_string()} does not hold every {source.dtype.to_string()}"
            self._refuse(node, f"{names}: the first cast rounds")
        elif source.dtype == result.dtype:
            self._replace(node, source.array)
        elif (source.dtype in FLOATS) == (result.dtype in FLOATS):
            code = BY_DACE_TYPE[result.dtype].onnx_code
            self._put(node, lambda op: op.Cast(source, to=code, shape=result.shape, dtype=result.dtype))

    def _put(self, node: ONNXNode, make: Callable[[Any], Value]) -> None:
        """Put one operator in the place of another, or of a pair."""
        old = next(a for a in self.graph.results(node) if a is not None)
        made = make(ReplacementOps(self.graph, node, NAME))
        take_place(self.graph, old, made.array)
        remove_unread(self.graph, [node])
        pairs = "Einsum of one operand" if node.op_type == "Einsum" else f"pairs of {node.op_type}"
        self._count(pairs)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _refuse(self, node: ONNXNode, reason: str) -> None:
        self.refused.append(refused_result(node, reason, self.graph))
