"""Scatters: a computation that writes at positions that depend on data, in the canonical form.

One top-level map runs over the lanes: parts of the target that no update leaves, so that two of them never
write the same element, and may run at the same time. Inside it two sequential maps follow each other: the
first gives every element of the lane its start, the second goes through the updates in their order. Between
them stands an access node of the target, the only one of an argument inside a scope: it says that the second
map continues what the first one wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import sympy
from dace import dtypes
from dace.memlet import Memlet
from dace.sdfg import nodes

from daceml.sdfg.access import add_access
from daceml.sdfg.builder import (
    Builder,
    Computation,
    Scope,
    Spans,
    box,
    new_map,
    reduced_parameters,
    span_of,
)
from daceml.sdfg.scalar import Index, Reduction, Scalar, apply, cast, read
from daceml.sdfg.tasklet_code import RESULT, Access, find_reductions, print_store, print_tasklet

Operator = Literal["none", "add", "mul", "max", "min"]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One assignment for every point of a box, in row-major order.

    Attributes:
        params, extents: the box, beside the lane's.
        index: one expression for each dimension of the target; a Scalar is a position read from data.
        value: what is written, or what the operator takes beside the element that is there.
    """

    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    index: tuple[Index | Scalar, ...]
    value: Scalar

    @property
    def empty(self) -> bool:
        """Whether the box has no points."""
        return any(isinstance(e, int) and e <= 0 for e in self.extents)


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """`target = start`, then `target[index] = operator(target[index], value)` for each update in turn.

    Attributes:
        label: name of the map, for people.
        target: array written.
        params, extents: the lanes; no point of a loop writes outside its lane. () is one lane.
        start: gives every element of a lane its first value, once each; no index of it is data.
        updates: positions may repeat; they must lie in the target.
        operator: `none` overwrites, so that the last update of an element counts.
    """

    label: str
    target: str
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    start: Loop
    updates: Loop
    operator: Operator = "none"

    @property
    def empty(self) -> bool:
        """Whether nothing is written."""
        return self.start.empty or any(isinstance(e, int) and e <= 0 for e in self.extents)


def emit_scatter(builder: Builder, scatter: Scatter) -> nodes.MapEntry | None:
    """Adds the scope of a scatter; None where the target has no elements."""
    if scatter.empty:
        return None
    if scatter.updates.empty:
        start = scatter.start
        return builder.emit(
            Computation(
                label=scatter.label,
                target=scatter.target,
                index=tuple(i for i in start.index if not isinstance(i, Scalar)),
                params=(*scatter.params, *start.params),
                extents=(*scatter.extents, *start.extents),
                value=start.value,
            )
        )
    updates = scatter.updates
    value = updates.value
    desc = builder.sdfg.arrays[scatter.target]
    if scatter.operator != "none":
        there = read(scatter.target, desc.dtype, updates.index, desc.shape)
        value = apply(scatter.operator, there, cast(value, there.dtype))
    lanes = Lanes(builder, scatter.label, scatter.target, scatter.params, scatter.extents)
    between = add_access(builder.state, scatter.target)
    lanes.close(lanes.loop("start", scatter.start, scatter.start.value, [], None), between)
    written = lanes.loop("updates", updates, value, [], between)
    lanes.finish(written)
    return lanes.entry


@dataclass(frozen=True, kw_only=True)
class Written:
    """The end of a sequential map, and what it writes of a lane."""

    end: nodes.MapExit
    subset: Spans


Level = tuple[nodes.MapEntry, dict[sympy.Basic, Index | Scalar]]


class Lanes(Scope):
    """A top-level map over lanes of one array; sequential maps inside it write the array in turn."""

    def close(self, written: Written, after: nodes.AccessNode) -> None:
        """What a map wrote is found at an access node of the target."""
        memlet = Memlet(data=self.target, subset=box(written.subset))
        self.state.add_edge(written.end, "OUT_" + self.target, after, None, memlet)

    def leave(self, written: Written, end: nodes.MapExit) -> None:
        """What a map wrote leaves the map around it."""
        target = self.target
        memlet = Memlet(data=target, subset=box(written.subset))
        self.state.add_edge(written.end, "OUT_" + target, end, "IN_" + target, memlet)
        end.add_in_connector("IN_" + target)
        end.add_out_connector("OUT_" + target)

    def finish(self, written: Written) -> None:
        """What the last map wrote leaves the top-level map."""
        self.leave(written, self.exit)
        memlet = Memlet(data=self.target, subset=box(self.widen(self.target, written.subset, self.ranges)))
        node = self.builder.node_of(self.target)
        self.state.add_edge(self.exit, "OUT_" + self.target, node, None, memlet)

    def loop(
        self,
        what: str,
        loop: Loop,
        value: Scalar,
        around: Sequence[Level],
        held: nodes.AccessNode | nodes.MapEntry | None,
    ) -> Written:
        """A sequential map that writes the target.

        Args:
            value: may read the target anywhere in the lane, and hold one reduction.
            around: sequential maps that it stands in, outermost first.
            held: where it finds what is in the target: an access node beside it, or the innermost map around
                it; None where nothing is yet.
        """
        state, target, dtype = self.state, self.target, self.arrays[self.target].dtype
        label = f"{self.label}_{what}"
        params, extents = loop.params or reduced_parameters(1), loop.extents or (1,)
        first, last = new_map(label, params, extents, dtypes.ScheduleType.Sequential)
        state.add_nodes_from([first, last])
        here: Level = (first, dict(zip(params, extents, strict=True)))
        outside: list[Level] = [(self.entry, dict(self.ranges)), *around, here]
        inside: list[Level] = [*around, here] if isinstance(held, nodes.MapEntry) else [here]
        value = cast(value, dtype)
        positions = tuple(i for i in loop.index if isinstance(i, Scalar))
        known = tuple(None if isinstance(i, Scalar) else i for i in loop.index)
        if positions:
            place = Scalar("gather", dtype, positions, (target, known, tuple(self.arrays[target].shape)))
            code = print_store(value, place)
            assert code.place is not None
            known = code.place.indices
        else:
            code = print_tasklet(value)
        tasklet = self.tasklet(label, code)

        def bring(reads: Mapping[str, Access], reader: nodes.Tasklet, below: Sequence[Level]) -> None:
            for connector, access in reads.items():
                if access.array != target:
                    self.bring(
                        self.builder.node_of(access.array), access, reader, connector, [*outside, *below]
                    )
                    continue
                assert held is not None, "the start of a lane reads nothing of it"
                source, levels = (held, inside)
                if isinstance(held, nodes.MapEntry):
                    (edge,) = state.in_edges_by_connector(held, "IN_" + target)
                    source = edge.src
                self.bring(source, access, reader, connector, [*levels, *below])

        (reduction,) = find_reductions(value) or (None,)
        if reduction is not None:
            self._reduce(label, tasklet, reduction, first, bring)
        bring(code.reads, tasklet, ())
        if isinstance(held, nodes.AccessNode) and not state.edges_between(held, first):
            state.add_edge(held, None, first, None, Memlet())
        elif not state.in_degree(first):
            state.add_edge(around[-1][0] if around else self.entry, None, first, None, Memlet())
        if not state.in_degree(tasklet):
            state.add_edge(first, None, tasklet, None, Memlet())
        subset = [span_of(i, self.arrays[target].shape, d) for d, i in enumerate(known)]
        memlet = Memlet(data=target, subset=box(subset))
        memlet.volume = 1  # of what the connector covers, only the code knows which
        state.add_edge(tasklet, RESULT, last, "IN_" + target, memlet)
        last.add_in_connector("IN_" + target)
        last.add_out_connector("OUT_" + target)
        return Written(end=last, subset=self.widen(target, subset, here[1]))

    def bring(
        self,
        source: nodes.AccessNode | nodes.MapEntry,
        access: Access,
        tasklet: nodes.Tasklet,
        connector: str,
        levels: Sequence[Level],
    ) -> None:
        """Edges from an array through maps, outermost first, to a tasklet."""
        subset = [span_of(i, access.shape, d) for d, i in enumerate(access.indices)]
        covered = [subset]
        for _, ranges in reversed(levels):
            covered.append(self.widen(access.array, covered[-1], ranges))
        for (entry, _), span in zip(levels, reversed(covered[1:]), strict=True):
            self.extend(source, entry, access.array, span)
            source = entry
        memlet = Memlet(data=access.array, subset=box(subset))
        memlet.volume = 1
        self.state.add_edge(source, "OUT_" + access.array, tasklet, connector, memlet)

    def _reduce(
        self,
        label: str,
        final: nodes.Tasklet,
        node: Scalar,
        first: nodes.MapEntry,
        bring: Callable[[Mapping[str, Access], nodes.Tasklet, Sequence[Level]], None],
    ) -> None:
        """The accumulator of `final` inside a sequential map."""
        before, after, wcr = self.accumulator(label, node, first)
        reduction: Reduction = node.data
        if any(isinstance(e, Scalar) for e in reduction.extents):
            raise ValueError(f"{label}: the extent of a reduction in a step is data")
        entry, exit_ = new_map(
            label + "_reduce", reduction.params, reduction.extents, dtypes.ScheduleType.Sequential
        )
        self.state.add_edge(before, None, entry, None, Memlet())
        code = print_tasklet(cast(node.args[0], node.dtype))
        body = self.tasklet(label + "_body", code)
        bring(code.reads, body, [(entry, dict(zip(reduction.params, reduction.extents, strict=True)))])
        self.accumulate(body, exit_, after, final, wcr)
