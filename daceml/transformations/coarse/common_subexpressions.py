"""merge_common_subexpressions: what two operators compute from the same operands is computed once.

f(x), f(x)   ->   f(x), read by both

Views of one tensor stay apart, and what reads equal views is equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.domain.custom_gradients import CUSTOM
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.random_operators import draws
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.transformations.rewriting.pattern import COMMUTATIVE, OperatorGraph
from daceml.transformations.rewriting.refusals import refused_result
from daceml.transformations.rewriting.replacement import Value, remove_unread, take_place

# Larger constants are equal only where they are one array
_MOST_BYTES = 65_536
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def merge_common_subexpressions(network: Network) -> int:
    """Compute once what several operators compute. Mutates the network, which is not lowered yet.

    Returns:
        how many operators went.
    """
    merging = _Merging(network)
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        merging.visit(node)
    merging.remove_merged()
    network.passes.append(
        PassRecord(
            level="coarse",
            name="merge_common_subexpressions",
            applied={"equal operators": len(merging.merged)} if merging.merged else {},
            refused=tuple(merging.refused),
        )
    )
    return len(merging.merged)


class _Merging:
    """One way through a network, operands before what reads them."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph = network, OperatorGraph(network)
        self.first: dict[Hashable, ONNXNode] = {}
        self.merged: list[ONNXNode] = []
        self.refused: list[Refusal] = []
        # an array's name may go when two become one; its number stays
        self._numbers: dict[str, Hashable] = {}

    def visit(self, node: ONNXNode) -> None:
        """Merge a node with an equal one that came before."""
        if node.implementation or (node.domain and node.op_type in CUSTOM):
            return
        key = self._key(node)
        same = self.first.setdefault(key, node)
        if same is node:
            return
        if (reason := self._refusal(node, same)) is not None:
            self.refused.append(refused_result(node, reason, self.graph))
            return
        # views cost nothing, and where they stay apart, their gradients are one sum in the operand's shape
        apart = not node.domain and node.op_type in _VIEWS
        for old, new in zip(self.graph.results(node), self.graph.results(same), strict=True):
            if old is None or new is None:
                continue
            self._numbers[old] = self._numbers[new] = self._number(new)
            if not apart:
                take_place(self.graph, old, new)
        if not apart:
            self.merged.append(node)

    def remove_merged(self) -> None:
        """Remove the operators whose results others give now."""
        remove_unread(self.graph, self.merged)
        self.network.sdfg.reset_cfg_list()

    def _refusal(self, node: ONNXNode, same: ONNXNode) -> str | None:
        if draws(node):
            return "it draws random numbers, so each evaluation has its own value"
        ours, theirs = self.graph.results(node), self.graph.results(same)
        if [a is None for a in ours] != [a is None for a in theirs]:
            return "an equal operator returns other results"
        types = [
            [None if a is None else (Value(a, self.graph).shape, Value(a, self.graph).dtype) for a in arrays]
            for arrays in (ours, theirs)
        ]
        return None if types[0] == types[1] else "an equal operator declares another shape"

    def _key(self, node: ONNXNode) -> Hashable:
        operands = [None if a is None else self._number(a) for a in self.graph.operands(node)]
        if not node.domain and node.op_type in COMMUTATIVE:
            operands.sort(key=repr)
        attributes = tuple((name, _hashable(value)) for name, value in node.attribute_values().items())
        notes = (node.lowest_index, node.padding_row, node.divided_by_counts, node.shapes_declared)
        return (node.domain, node.op_type, node.since_version, attributes, notes, tuple(operands))

    def _number(self, array: str) -> Hashable:
        if array not in self._numbers:
            constant = self.network.constants.get(array)
            own = constant is None or constant.nbytes > _MOST_BYTES
            scalar = array in self.network.scalars
            self._numbers[array] = len(self._numbers) if own else (scalar, _hashable(constant))
        return self._numbers[array]


def _hashable(value: Any) -> Hashable:
    # as text: -0.0 is not 0.0
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)
