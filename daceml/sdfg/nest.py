"""Nests: several loops under one top-level map, which hand values over in registers and small local arrays.

for each point of the nest:                     softmax of a row, for example
    for each point of loop 1:                   m    = max(m, X[row, k])
        write, or accumulate, some values
    for each point of loop 2:                   e[k] = exp(X[row, k] - m);  s += e[k]
    ...                                         Y[row, k] = e[k] / s

The points are independent of each other. A local array belongs to one point; a loop is run after those whose
locals it reads. `daceml.sdfg.builder` writes the special case of one result.

Points may add up something that goes on from point to point: sums of columns beside what is done with each
row. Then chunks of points are independent of each other, and every chunk writes its share of the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sympy
from dace import dtypes, symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes

from daceml.sdfg.access import add_access
from daceml.sdfg.builder import Builder, Scope, Spans, box, conflict_resolution, new_map, span_of, union
from daceml.sdfg.scalar import DType, Index, Scalar, cast, identity, read
from daceml.sdfg.tasklet_code import Access, print_results

Operator = Literal["sum", "prod", "max", "min"]

_POINT = tuple(symbolic.symbol(f"i{d}") for d in range(16))
_INNER = tuple(symbolic.symbol(f"r{d}") for d in range(16))
# Loops over these are independent in every iteration; the compiler is told so (`daceml.codegen.loop_hints`).
_VECTOR = tuple(symbolic.symbol(f"v{d}") for d in range(16))
_SEQUENCE = tuple(symbolic.symbol(f"k{d}") for d in range(16))


@dataclass(frozen=True, kw_only=True)
class Write:
    """`target[index] = value`, or `target[index] = operator(target[index], value)`.

    Attributes:
        target: an array of the network, or a local one of the nest.
        value: without reductions.
        operator: None writes an element once.
    """

    target: str
    index: tuple[Index, ...]
    value: Scalar
    operator: Operator | None = None


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What is done for every point of a box, in row-major order.

    Attributes:
        params, extents: the box, beside the nest's; () runs once.
        writes: all with an operator, or none, beside sums over the points of a nest; no value reads a target
            of the same loop.
        sequential: how many leading parameters may come back to an element that they have written. Iterations
            over the others are independent of each other.
    """

    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    writes: tuple[Write, ...]
    sequential: int = 0


@dataclass(frozen=True, kw_only=True)
class Nest:
    """Loops that follow each other in every point of a box.

    Attributes:
        label: name of the map, for people.
        params, extents: the box; its points write different elements.
        local: shape and element type of every local array, by name.
    """

    label: str
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    loops: tuple[Loop, ...]
    local: Mapping[str, tuple[tuple[Index, ...], DType]]


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """A nest whose points are gone through in chunks, one point after the other, and what they add up.

    Attributes:
        nest: over the parameters of chunks and of points in a chunk; its loops write into `sums`.
        params, extents: of a point in its chunk; extents may depend on the chunk.
        sums: shape and element type of every sum, by name.
        last: loops of a chunk behind its points, which write what the sums have come to.
    """

    nest: Nest
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    sums: Mapping[str, tuple[tuple[Index, ...], DType]]
    last: tuple[Loop, ...]


def points(count: int) -> tuple[Index, ...]:
    """Parameters of a nest: `i0, i1, …`."""
    return _POINT[:count]


def points_of_chunks(count: int) -> tuple[Index, ...]:
    """Parameters of points in a chunk: `r0, r1, …`."""
    return _INNER[:count]


def loop_parameters(sequential: int, count: int) -> tuple[Index, ...]:
    """Parameters of a loop: `k0, …`, then `v0, …` where iterations are independent."""
    return (*_SEQUENCE[:sequential], *_VECTOR[: count - sequential])


def start(target: str, shape: Sequence[Index], dtype: DType, operator: Operator) -> Loop:
    """The loop that gives an accumulator the value from which it starts."""
    extents = tuple(e for e in shape if e != 1)
    params = loop_parameters(0, len(extents))
    left = iter(params)
    index = tuple(0 if e == 1 else next(left) for e in shape)
    value = identity(operator, dtype)
    return Loop(params=params, extents=extents, writes=(Write(target=target, index=index, value=value),))


def emit_nest(builder: Builder, nest: Nest) -> nodes.MapEntry | None:
    """Adds the scope of a nest; None where it has no points. Local arrays get names of their own."""
    if any(isinstance(e, int) and e <= 0 for e in nest.extents):
        return None
    scope = _NestScope(builder, nest)
    for loop in nest.loops:
        scope.add(loop)
    return scope.entry


def emit_chunks(builder: Builder, chunks: Chunks) -> nodes.MapEntry | None:
    """Adds the scope of a nest in chunks; None where it has no points."""
    nest = chunks.nest
    if any(isinstance(e, int) and e <= 0 for e in nest.extents):
        return None
    scope = _NestScope(builder, nest)
    for name, (shape, dtype) in chunks.sums.items():
        scope.keep(name, shape, dtype)
        scope.add(start(name, shape, dtype, "sum"))
    scope.enter(chunks.params, chunks.extents)
    for loop in nest.loops:
        scope.add(loop)
    scope.leave()
    for loop in chunks.last:
        scope.add(loop)
    return scope.entry


def hand_over(
    name: str, shape: tuple[Index, ...], dtype: DType, target: str, chunk: tuple[Index, ...]
) -> Loop:
    """The loop that writes a sum of a chunk to the target's elements of that chunk."""
    params = loop_parameters(0, len(shape))
    written = Write(target=target, index=(*chunk, *params), value=read(name, dtype, params, shape))
    return Loop(params=params, extents=shape, writes=(written,))


class _NestScope(Scope):
    """The top-level map of a nest under construction."""

    def __init__(self, builder: Builder, nest: Nest) -> None:
        super().__init__(builder, nest.label, "", nest.params, nest.extents)
        self.names: dict[str, str] = {}
        self.held: dict[str, nodes.AccessNode] = {}
        self.inside: tuple[nodes.MapEntry, nodes.MapExit] | None = None
        self.inside_ranges: dict[sympy.Basic, Index | Scalar] = {}
        self.outside: frozenset[str] = frozenset()
        for name, (shape, dtype) in nest.local.items():
            self.keep(name, shape, dtype)

    def keep(self, name: str, shape: Sequence[Index], dtype: DType) -> None:
        """A local array under a name that is free."""
        self.names[name], _ = self.builder.sdfg.add_transient(
            name, shape, dtype, storage=dtypes.StorageType.Register, find_new_name=True
        )

    def enter(self, params: Sequence[sympy.Basic], extents: Sequence[Index]) -> None:
        """Put the loops that follow into one over points, beside what is kept so far."""
        self.inside = new_map(self.label, params, extents, dtypes.ScheduleType.Sequential)
        self.inside_ranges = dict(zip(params, extents, strict=True))
        self.state.add_nodes_from(self.inside)
        self.outside = frozenset(self.held)

    def leave(self) -> None:
        """Put the loops that follow behind the one over points."""
        assert self.inside is not None
        if not self.state.in_degree(self.inside[0]):
            self.state.add_edge(self.entry, None, self.inside[0], None, Memlet())
        self.inside, self.inside_ranges = None, {}

    @property
    def around(self) -> nodes.MapEntry:
        """The map that loops are put into."""
        return self.inside[0] if self.inside else self.entry

    def add(self, loop: Loop) -> None:
        """One loop behind those that are there."""
        if any(isinstance(e, int) and e <= 0 for e in loop.extents):
            return
        inner = end = None
        self.inner_ranges = dict(zip(loop.params, loop.extents, strict=True))
        if loop.params:
            schedule = dtypes.ScheduleType.Sequential
            inner, end = new_map(self.label, loop.params, loop.extents, schedule)
            self.state.add_nodes_from([inner, end])
        for writes in _tasklets(loop):
            self._add_tasklet(writes, inner, end)
        if inner is not None and not self.state.in_degree(inner):
            self.state.add_edge(self.around, None, inner, None, Memlet())

    def _add_tasklet(
        self, writes: Sequence[Write], inner: nodes.MapEntry | None, end: nodes.MapExit | None
    ) -> None:
        code, connectors = print_results([self._typed(write) for write in writes])
        inputs: dict[str, None] = dict.fromkeys(code.reads)
        tasklet = nodes.Tasklet(
            self.label, inputs, dict.fromkeys(connectors), code.code, debuginfo=dtypes.DebugInfo(0)
        )
        self.state.add_node(tasklet)
        for connector, access in code.reads.items():
            self._bring(access, tasklet, connector, inner)
        for write, connector in zip(writes, connectors, strict=True):
            self._take(write, tasklet, connector, inner, end)
        if not self.state.in_degree(tasklet):
            self.state.add_edge(inner or self.around, None, tasklet, None, Memlet())

    def _typed(self, write: Write) -> Scalar:
        name = self.names.get(write.target, write.target)
        return cast(write.value, self.arrays[name].dtype)

    def _bring(
        self, access: Access, tasklet: nodes.Tasklet, connector: str, inner: nodes.MapEntry | None
    ) -> None:
        subset = [span_of(i, access.shape, d) for d, i in enumerate(access.indices)]
        local = access.array in self.names
        name = self.names.get(access.array, access.array)
        memlet = Memlet(data=name, subset=box(subset))
        wide = self.widen(name, subset, self.inner_ranges) if inner is not None else subset
        source: nodes.Node = self.held[access.array] if local else self.around
        if not local:
            outside = self.builder.node_of(name)
            wider = self.widen(name, wide, self.inside_ranges) if self.inside else wide
            self.extend(outside, self.entry, name, self.widen(name, wider, self.ranges))
            if self.inside:
                self.extend(self.entry, self.around, name, wider)
        if inner is not None:
            self.extend(source, inner, name, wide)
            self.state.add_edge(inner, "OUT_" + name, tasklet, connector, memlet)
        else:
            out = None if local else "OUT_" + name
            self.state.add_edge(source, out, tasklet, connector, memlet)

    def _take(
        self,
        write: Write,
        tasklet: nodes.Tasklet,
        connector: str,
        inner: nodes.MapEntry | None,
        end: nodes.MapExit | None,
    ) -> None:
        """Edges from a tasklet to where its result is kept."""
        local = write.target in self.names
        name = self.names.get(write.target, write.target)
        how = conflict_resolution(write.operator, self.arrays[name].dtype) if write.operator else None
        subset: Spans = [(i, i) for i in write.index]
        source: nodes.Node = tasklet
        first: nodes.Node = inner or tasklet
        ends = [(end, self.inner_ranges)] if end is not None else []
        if self.inside and (not local or write.target in self.outside):
            first = self.inside[0]
            ends.append((self.inside[1], self.inside_ranges))
        for map_exit, ranges in ends:
            memlet = Memlet(data=name, subset=box(subset), wcr=how)
            self.state.add_edge(source, connector, map_exit, "IN_" + name, memlet)
            map_exit.add_in_connector("IN_" + name)
            subset = self.widen(name, subset, ranges)
            if not map_exit.add_out_connector("OUT_" + name):
                self._extend_written(map_exit, name, subset)
                return
            source, connector = map_exit, "OUT_" + name
        memlet = Memlet(data=name, subset=box(subset), wcr=how)
        if local:
            node = add_access(self.state, name)
            before = self.held.get(write.target)
            if before is not None:
                self.state.add_edge(before, None, first, None, Memlet())
            self.state.add_edge(source, connector, node, None, memlet)
            self.held[write.target] = node
            return
        self.state.add_edge(source, connector, self.exit, "IN_" + name, memlet)
        self.exit.add_in_connector("IN_" + name)
        subset = self.widen(name, subset, self.ranges)
        if not self.exit.add_out_connector("OUT_" + name):
            self._extend_written(self.exit, name, subset)
            return
        outer = Memlet(data=name, subset=box(subset))
        self.state.add_edge(self.exit, "OUT_" + name, self.builder.node_of(name), None, outer)

    def _extend_written(self, end: nodes.Node, name: str, subset: Spans) -> None:
        """Let what several loops write of an array pass the ends of maps together, from one of them on."""
        while isinstance(end, nodes.MapExit):
            (edge,) = self.state.out_edges_by_connector(end, "OUT_" + name)
            before: Any = edge.data.subset
            known = [(low, high) for low, high, _ in before.ranges]
            subset = union(known, subset, self.arrays[name].shape)
            edge.data = Memlet(data=name, subset=box(subset), wcr=edge.data.wcr)
            end = edge.dst
            if end is self.exit:
                subset = self.widen(name, subset, self.ranges)


def _tasklets(loop: Loop) -> list[list[Write]]:
    """What is written together: DaCe's code has room for one extremum in a tasklet."""
    extrema = [write for write in loop.writes if write.operator in ("max", "min")]
    others = [write for write in loop.writes if write.operator not in ("max", "min")]
    return [*([others] if others else []), *([write] for write in extrema)]


def is_small(shape: Sequence[Index], dtype: DType, limit_bytes: int) -> bool:
    """Whether a local array of a shape is known to fit into some bytes."""
    elements = 1
    for extent in shape:
        if not isinstance(extent, int):
            return False
        elements *= extent
    return elements * dtype.bytes <= limit_bytes
