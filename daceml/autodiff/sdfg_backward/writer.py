"""New states with one computation each, in a line inside a region."""

from __future__ import annotations

from collections.abc import Mapping

import dace
from dace import dtypes
from dace.sdfg import nodes
from dace.sdfg.state import ControlFlowBlock, ControlFlowRegion

from daceml.sdfg.builder import Builder, Computation
from daceml.sdfg.scalar_environment import declare_scalar_functions
from daceml.sdfg.scatter import Scatter, emit_scatter


class Writer:
    """Adds blocks to a region, each after the one before.

    Attributes:
        pending: assignments to symbols that hold from the next block on.
    """

    def __init__(
        self, sdfg: dace.SDFG, region: ControlFlowRegion, last: ControlFlowBlock | None = None
    ) -> None:
        self.sdfg, self.region, self.last = sdfg, region, last
        self.pending: dict[str, str] = {}

    def append(self, block: ControlFlowBlock) -> None:
        """A block that is not in the region yet comes last."""
        first = self.last is None and not self.pending
        if self.last is None and self.pending:
            self.last = self.region.add_state("before", is_start_block=True)
        self.region.add_node(block, is_start_block=first, ensure_unique_name=True)
        if self.last is not None:
            self.region.add_edge(self.last, block, dace.InterstateEdge(assignments=dict(self.pending)))
            self.pending = {}
        self.last = block

    def state(self, label: str) -> dace.SDFGState:
        """A new state."""
        state = dace.SDFGState(label, sdfg=self.sdfg)
        self.append(state)
        return state

    def compute(self, computation: Computation) -> None:
        """A state with one computation."""
        state = self.state(computation.label)
        builder = Builder(self.sdfg, state)
        entry = builder.emit(computation)
        if entry is not None:
            _written_apart(state, builder.node_of(computation.target))
        finish(state, entry, computation.extents)

    def scatter(self, scatter: Scatter) -> None:
        """A state with one scatter."""
        state = self.state(scatter.label)
        finish(state, emit_scatter(Builder(self.sdfg, state), scatter), scatter.extents)

    def assign(self, assignments: Mapping[str, str]) -> None:
        """Symbols that have these values from the next block on."""
        self.pending.update(assignments)


def _written_apart(state: dace.SDFGState, node: nodes.AccessNode) -> None:
    """An array that is updated in place has one access node before and one after."""
    if not state.out_degree(node):
        return
    after = nodes.AccessNode(node.data)
    state.add_node(after)
    for edge in state.in_edges(node):
        state.remove_edge(edge)
        state.add_edge(edge.src, edge.src_conn, after, edge.dst_conn, edge.data)


def finish(state: dace.SDFGState, entry: nodes.MapEntry | None, extents: tuple[object, ...]) -> None:
    """One point needs no threads; tasklets find the functions that they call."""
    if entry is not None and all(str(e) == "1" for e in extents):
        entry.map.schedule = dtypes.ScheduleType.Sequential
    declare_scalar_functions(state.nodes())
