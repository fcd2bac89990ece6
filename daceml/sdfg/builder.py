"""Computations written into an SDFG state in the canonical form.

A computation without a reduction is one map with one tasklet. One with a reduction is a map over the output's
indices that holds: init tasklet -> accumulator (a register) -> sequential map that adds into it -> final
tasklet. A segment's length is data: a tasklet reads it, and it enters the sequential map as a dynamic range.
Writes at positions that depend on data are scatters (`daceml.sdfg.scatter`), steps that continue from each
other recurrences (`daceml.sdfg.recurrence`). Nothing is parsed and nothing is propagated: subsets are built
as objects, outer ones from the bounds of affine indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast as cast_type

import dace
import sympy
from dace import dtypes, symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.access import add_access, outer_accesses
from daceml.sdfg.scalar import FLOATS, DType, Index, Reduction, Scalar, cast, identity, read
from daceml.sdfg.tasklet_code import RESULT, Access, TaskletCode, find_reductions, print_tasklet

_PARAMETERS = tuple(symbolic.symbol(f"i{d}") for d in range(16))
_LENGTH = symbolic.symbol("_length")
_REDUCED = tuple(symbolic.symbol(f"k{d}") for d in range(16))


@dataclass(frozen=True, kw_only=True)
class Computation:
    """`target[index] = value` for every point of a box.

    Attributes:
        label: name of the map, for people.
        target: array written.
        index: one expression in `params` for each dimension of the target; no two points give the same.
        params: map parameters, from 0 to `extents`.
        extents: size of the box; () runs once.
        value: what is written; it holds at most one reduction, and nothing reduces inside a reduction.
    """

    label: str
    target: str
    index: tuple[Index, ...]
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    value: Scalar

    @property
    def empty(self) -> bool:
        """Whether the box has no points."""
        return any(isinstance(e, int) and e <= 0 for e in self.extents)


def parameters(count: int) -> tuple[Index, ...]:
    """Map parameters `i0, i1, …`."""
    return _PARAMETERS[:count]


def reduced_parameters(count: int) -> tuple[Index, ...]:
    """Parameters `k0, k1, …` of reductions."""
    return _REDUCED[:count]


class Builder:
    """Writes computations into one state; every array has one access node there.

    Args:
        access: array name -> access node; those of the state where None is given. Shared, and grows.
    """

    def __init__(
        self, sdfg: dace.SDFG, state: dace.SDFGState, access: dict[str, nodes.AccessNode] | None = None
    ) -> None:
        self.sdfg, self.state = sdfg, state
        self.access = outer_accesses(state) if access is None else access

    def emit(self, computation: Computation) -> nodes.MapEntry | None:
        """Adds the scope of a computation; None where its box is empty, which needs no scope."""
        if computation.empty:
            return None
        dtype = self.sdfg.arrays[computation.target].dtype
        value = cast(computation.value, dtype)
        reductions = find_reductions(value)
        if len(reductions) > 1:
            raise ValueError(
                f"{computation.label}: {len(reductions)} reductions in one computation; materialize one"
            )
        scope = Scope(self, computation.label, computation.target, computation.params, computation.extents)
        code = print_tasklet(value)
        final = scope.tasklet(computation.label, code)
        if reductions:
            scope.reduce_into(final, reductions[0])
        scope.read(final, code.reads)
        scope.write(final, computation.index)
        return scope.entry

    def emit_copy(self, label: str, source: str, target: str) -> nodes.MapEntry | None:
        """Write one array into another one of its shape, whatever their strides."""
        desc = self.sdfg.arrays[target]
        shape = tuple(desc.shape)
        params = parameters(len(shape))
        value = read(source, desc.dtype, params, shape)
        return self.emit(
            Computation(label=label, target=target, index=params, params=params, extents=shape, value=value)
        )

    def node_of(self, array: str) -> nodes.AccessNode:
        """The access node of an array, added where there is none."""
        if array not in self.access:
            self.access[array] = add_access(self.state, array)
        return self.access[array]


class Scope:
    """One top-level map under construction."""

    def __init__(
        self,
        builder: Builder,
        label: str,
        target: str,
        params: Sequence[sympy.Basic],
        extents: Sequence[Index],
    ) -> None:
        self.builder, self.label, self.target = builder, label, target
        self.state, self.arrays = builder.state, builder.sdfg.arrays
        if not params:
            params, extents = _PARAMETERS[:1], (1,)
        self.ranges: dict[sympy.Basic, Index] = dict(zip(params, extents, strict=True))
        self.entry, self.exit = new_map(label, params, extents, dtypes.ScheduleType.Default)
        self.state.add_node(self.entry)
        self.state.add_node(self.exit)
        self.inner_ranges: dict[sympy.Basic, Index | Scalar] = {}

    def tasklet(self, label: str, code: TaskletCode) -> nodes.Tasklet:
        """A tasklet without edges yet."""
        inputs: dict[str, None] = dict.fromkeys([*code.reads, *([code.value] if code.value else [])])
        # TaskletFusion of DaCe 2.0.0b1 fails where neither of two tasklets has a place in some source
        place = dtypes.DebugInfo(0)
        tasklet = nodes.Tasklet(label, inputs, {RESULT: None}, code.code, debuginfo=place)
        self.state.add_node(tasklet)
        return tasklet

    def read(
        self, tasklet: nodes.Tasklet, reads: Mapping[str, Access], inner: nodes.MapEntry | None = None
    ) -> None:
        """Edges from arrays through the map (and the inner one) to a tasklet; an empty one if none."""
        below = inner or self.entry
        for connector, access in reads.items():
            subset = [span_of(i, access.shape, d) for d, i in enumerate(access.indices)]
            self._pass_through(access.array, subset, inner)
            memlet = Memlet(data=access.array, subset=box(subset))
            self.state.add_edge(below, "OUT_" + access.array, tasklet, connector, memlet)
        if not self.state.in_degree(tasklet):
            self.state.add_edge(below, None, tasklet, None, Memlet())

    def write(self, tasklet: nodes.Tasklet, at: Sequence[Index]) -> None:
        """Edges from a tasklet through the map's exit to the target."""
        target, state = self.target, self.state
        index = [(i, i) for i in at]
        state.add_edge(tasklet, RESULT, self.exit, "IN_" + target, Memlet(data=target, subset=box(index)))
        self.exit.add_in_connector("IN_" + target)
        self.exit.add_out_connector("OUT_" + target)
        outer = box(self.widen(target, index, self.ranges))
        state.add_edge(
            self.exit, "OUT_" + target, self.builder.node_of(target), None, Memlet(data=target, subset=outer)
        )

    def reduce_into(self, final: nodes.Tasklet, node: Scalar) -> None:
        """The accumulator of `final`, its initialisation and the sequential map that adds into it."""
        reduction: Reduction = node.data
        state, label = self.state, self.label
        before, after, wcr = self.accumulator(label, node, self.entry)
        extents = [_LENGTH if isinstance(e, Scalar) else e for e in reduction.extents]
        entry, exit_ = new_map(label + "_reduce", reduction.params, extents, dtypes.ScheduleType.Sequential)
        self.inner_ranges = dict(zip(reduction.params, reduction.extents, strict=True))
        state.add_edge(before, None, entry, None, Memlet())
        for extent in reduction.extents:
            if isinstance(extent, Scalar):
                self._read_length(entry, extent)
        code = print_tasklet(cast(node.args[0], node.dtype))
        body = self.tasklet(label + "_body", code)
        self.read(body, code.reads, entry)
        self.accumulate(body, exit_, after, final, wcr)

    def accumulator(
        self, label: str, node: Scalar, entry: nodes.MapEntry
    ) -> tuple[nodes.AccessNode, nodes.AccessNode, str]:
        """A register with its start in a map: its access nodes before and after the sum, and how it adds."""
        operator = node.data.operator
        name, _ = self.builder.sdfg.add_transient(
            self.target + "_acc",
            [1],
            node.dtype,
            storage=dtypes.StorageType.Register,
            find_new_name=True,
        )
        before, after = add_access(self.state, name), add_access(self.state, name)
        init = self.tasklet(label + "_init", print_tasklet(identity(operator, node.dtype)))
        self.state.add_edge(entry, None, init, None, Memlet())
        self.state.add_edge(init, RESULT, before, None, _element(name))
        return before, after, conflict_resolution(operator, node.dtype)

    def accumulate(
        self,
        body: nodes.Tasklet,
        exit_: nodes.MapExit,
        after: nodes.AccessNode,
        final: nodes.Tasklet,
        wcr: str,
    ) -> None:
        """Edges from the terms through the end of their map and the accumulator to where it is used."""
        name, state = after.data, self.state
        state.add_edge(body, RESULT, exit_, "IN_" + name, _element(name, wcr))
        exit_.add_in_connector("IN_" + name)
        exit_.add_out_connector("OUT_" + name)
        state.add_edge(exit_, "OUT_" + name, after, None, _element(name, wcr))
        state.add_edge(after, None, final, "_acc", _element(name))

    def _read_length(self, entry: nodes.MapEntry, length: Scalar) -> None:
        """The length of a segment as the range of a map."""
        if str(_LENGTH) in entry.in_connectors:
            raise ValueError(f"{self.label}: more than one extent of a reduction is data")
        name, _ = self.builder.sdfg.add_transient(
            self.target + "_length",
            [1],
            dace.int64,
            storage=dtypes.StorageType.Register,
            find_new_name=True,
        )
        code = print_tasklet(cast(length, dace.int64))
        tasklet, held = self.tasklet(self.label + "_length", code), add_access(self.state, name)
        self.read(tasklet, code.reads)
        self.state.add_edge(tasklet, RESULT, held, None, _element(name))
        entry.add_in_connector(str(_LENGTH))
        self.state.add_edge(held, None, entry, str(_LENGTH), _element(name))

    def _pass_through(self, array: str, subset: Spans, inner: nodes.MapEntry | None) -> None:
        """Connectors and edges that bring an array to its reader, widened to what the scope reads."""
        if inner is not None:
            subset = self.widen(array, subset, self.inner_ranges)
            self.extend(self.entry, inner, array, subset)
        source = self.builder.node_of(array)
        self.extend(source, self.entry, array, self.widen(array, subset, self.ranges))

    def extend(self, source: nodes.Node, entry: nodes.MapEntry, array: str, subset: Spans) -> None:
        """Let a map have a part of an array from a source outside it."""
        connector = "IN_" + array
        if connector in entry.in_connectors:
            (edge,) = self.state.in_edges_by_connector(entry, connector)
            known = [(low, high) for low, high, _ in cast_type(Range, edge.data.subset).ranges]
            if any(a != b and str(a) != str(b) for a, b in zip(known, subset, strict=True)):
                edge.data = Memlet(data=array, subset=box(union(known, subset, self.arrays[array].shape)))
            return
        entry.add_in_connector(connector)
        entry.add_out_connector("OUT_" + array)
        out = None if isinstance(source, nodes.AccessNode) else "OUT_" + array
        self.state.add_edge(source, out, entry, connector, Memlet(data=array, subset=box(subset)))

    def widen(self, array: str, subset: Spans, ranges: Mapping[sympy.Basic, Index | Scalar]) -> Spans:
        """What a subset covers in all over a box; a whole dimension where that is not known."""
        shape = self.arrays[array].shape
        widened: Spans = []
        for (low, high), extent in zip(subset, shape, strict=True):
            first, last = span(low, ranges), span(high, ranges)
            widened.append((0, extent - 1) if first is None or last is None else (first[0], last[1]))
        return widened


Spans = list[tuple[Index, Index]]


def span(expression: Index, ranges: Mapping[sympy.Basic, Index | Scalar]) -> tuple[Index, Index] | None:
    """Smallest and largest value of an index expression over a box; None where it is not affine, or a range
    is data.
    """
    if isinstance(expression, int):
        return expression, expression
    if any(isinstance(ranges.get(s), Scalar) for s in expression.free_symbols):
        return None
    if expression in ranges:
        return 0, ranges[expression] - 1
    low: Index = 0
    high: Index = 0
    for term in sympy.Add.make_args(expression):
        factor, rest = term.as_coeff_Mul()
        if rest in ranges:
            reach = factor * (ranges[rest] - 1)
            low, high = (low + reach, high) if factor < 0 else (low, high + reach)
        elif not any(p in ranges for p in term.free_symbols):
            low, high = low + term, high + term
        else:
            return None
    return low, high


def span_of(index: Index | None, shape: Sequence[Index], dimension: int) -> tuple[Index, Index]:
    """One place of a dimension, or all of it."""
    return (0, shape[dimension] - 1) if index is None else (index, index)


def union(first: Spans, second: Spans, shape: Sequence[Index]) -> Spans:
    """What covers two subsets of an array; a whole dimension where it is not known which ends first."""
    both: Spans = []
    for (a, b), (c, d), extent in zip(first, second, shape, strict=True):
        if (a, b) == (c, d) or str((a, b)) == str((c, d)):
            both.append((a, b))
        elif all(isinstance(v, int) or getattr(v, "is_Integer", False) for v in (a, b, c, d)):
            both.append((min(a, c), max(b, d)))
        else:
            both.append((0, extent - 1))
    return both


def box(spans: Sequence[tuple[Index, Index]]) -> Range:
    """A subset with both ends included."""
    return Range([(low, high, 1) for low, high in spans])


def _element(array: str, wcr: str | None = None) -> Memlet:
    return Memlet(data=array, subset=Range([(0, 0, 1)]), wcr=wcr)


def new_map(
    label: str, params: Sequence[sympy.Basic], extents: Sequence[Index], schedule: dtypes.ScheduleType
) -> tuple[nodes.MapEntry, nodes.MapExit]:
    """The two ends of a map from 0 to `extents`."""
    ranges = Range([(0, extent - 1, 1) for extent in extents])
    body = nodes.Map(label, [str(p) for p in params], ranges, schedule=schedule)
    return nodes.MapEntry(body), nodes.MapExit(body)


def conflict_resolution(operator: str, dtype: DType) -> str:
    """How a memlet says that a value joins what is there."""
    if dtype == dace.bool_:
        return "lambda x, y: x or y" if operator == "max" else "lambda x, y: x and y"
    if operator in ("max", "min"):
        # A plain max would lose a NaN that comes before a number.
        return f"lambda x, y: {'nan_' if dtype in FLOATS else ''}{operator}(x, y)"
    return "lambda x, y: x + y" if operator == "sum" else "lambda x, y: x * y"
