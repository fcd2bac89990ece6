"""How clean gradients are: what a backward pass does beside computing them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import dace
from dace import dtypes
from dace.sdfg import nodes


@dataclass(frozen=True, kw_only=True)
class GradientReport:
    """Counts over the programs of a training step.

    Attributes:
        conflict_edges: edges by which writes to an array meet, accumulators in registers apart.
        zero_fills: scopes that write nothing but zeros, and access nodes that are filled with them.
        maps: top-level scopes.
        calls: other steps: library nodes, external calls, tasklets outside maps.
    """

    conflict_edges: int = 0
    zero_fills: int = 0
    maps: int = 0
    calls: int = 0

    @property
    def kernels(self) -> int:
        """Scopes and calls: what is launched where nothing is fused."""
        return self.maps + self.calls

    def __add__(self, other: GradientReport) -> GradientReport:
        return GradientReport(
            conflict_edges=self.conflict_edges + other.conflict_edges,
            zero_fills=self.zero_fills + other.zero_fills,
            maps=self.maps + other.maps,
            calls=self.calls + other.calls,
        )


def gradient_report(sdfg: dace.SDFG) -> GradientReport:
    """Count what stands in a program, nested ones included. Changes nothing."""
    total = GradientReport()
    for state in sdfg.states():
        total += _of_state(sdfg, state)
    for state in sdfg.states():
        for node in state.nodes():
            if isinstance(node, nodes.NestedSDFG):
                total += gradient_report(node.sdfg)
    return total


def _of_state(sdfg: dace.SDFG, state: dace.SDFGState) -> GradientReport:
    scopes = state.scope_dict()
    top = [n for n in state.nodes() if scopes[n] is None]
    fills = sum(isinstance(n, nodes.MapEntry) and _writes_zeros(state, n) for n in top)
    fills += sum(isinstance(n, nodes.AccessNode) and bool(n.setzero) for n in state.nodes())
    return GradientReport(
        conflict_edges=sum(_is_conflict(sdfg, e) for e in state.edges()),
        zero_fills=fills,
        maps=sum(isinstance(n, nodes.EntryNode) for n in top),
        calls=sum(isinstance(n, nodes.CodeNode) and not isinstance(n, nodes.NestedSDFG) for n in top),
    )


def _is_conflict(sdfg: dace.SDFG, edge: Any) -> bool:
    """One for each write that meets others: counted where it reaches its array."""
    if edge.data.wcr is None or not isinstance(edge.dst, nodes.AccessNode):
        return False
    desc = sdfg.arrays[edge.data.data]
    return not (desc.transient and desc.storage is dtypes.StorageType.Register)


def _writes_zeros(state: dace.SDFGState, entry: nodes.MapEntry) -> bool:
    """Whether all that a scope, or what it begins with, stores in arrays is zero."""
    inside = state.scope_subgraph(entry, include_entry=False, include_exit=False).nodes()
    tasklets = [n for n in inside if isinstance(n, nodes.Tasklet)]
    return bool(tasklets) and all(_is_zero(t) for t in tasklets)


def _is_zero(tasklet: nodes.Tasklet) -> bool:
    code = tasklet.code.code
    if not isinstance(code, list) or len(code) != 1 or not isinstance(code[0], ast.Assign):
        return False
    value = code[0].value
    if isinstance(value, ast.Call) and len(value.args) == 1:
        value = value.args[0]
    return isinstance(value, ast.Constant) and value.value == 0
