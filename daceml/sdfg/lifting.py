"""A scope read back as the computations it does: the inverse of `daceml.sdfg.builder`.

What can be lifted: a map, with maps inside it, around tasklets whose values go from one to the next through
registers; sums, products and extrema into a register, or into what the scope writes. Ranges may start
anywhere and have a step. Changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from typing import cast as cast_type

import dace
import sympy
from dace import dtypes, symbolic
from dace.sdfg import nodes

from daceml.sdfg.scalar import Index, Scalar, apply, cast, identity, read, reduce_over
from daceml.sdfg.scalar_rewrite import Names, as_index, rename
from daceml.sdfg.scopes import exit_among, nested_nodes
from daceml.sdfg.tasklet_parser import Element, UnreadableTasklet, parse_tasklet


class NotLiftable(Exception):  # noqa: N818  (an answer, not an error)
    """A scope that is no set of computations; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """`target[index] = value`, or `target[index] += value`, for every point of a box.

    Attributes:
        params, extents: the box; parameters are named `p0, p1, …` and run from 0.
        value: over the parameters; at most one reduction, whose parameters are `q0, q1, …`.
        resolves: how several writes to one element come together: None where there are none, else `sum`.
    """

    label: str
    target: str
    index: tuple[Index | Scalar, ...]
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    value: Scalar
    resolves: str | None = None


_Operator = Literal["sum", "prod", "max", "min"]
_OPERATORS: dict[str, _Operator] = {
    "x+y": "sum", "x*y": "prod", "max(x,y)": "max", "min(x,y)": "min", "nan_max(x,y)": "max",
    "nan_min(x,y)": "min", "xory": "max", "xandy": "min",
}  # fmt: skip
_POINT = tuple(symbolic.symbol(f"p{d}") for d in range(32))
_REDUCED = tuple(symbolic.symbol(f"q{d}") for d in range(32))


def arrays_outside(state: dace.SDFGState) -> frozenset[str]:
    """Arrays that have an access node outside all scopes."""
    scopes = state.scope_dict()
    return frozenset(n.data for n in state.data_nodes() if scopes[n] is None)


def lift(
    sdfg: dace.SDFG,
    state: dace.SDFGState,
    entry: nodes.MapEntry,
    outside: Collection[str] | None = None,
) -> tuple[Statement, ...]:
    """The statements of a top-level scope, in an order that keeps their dependences.

    Args:
        outside: `arrays_outside` of the state, for who lifts many scopes of it; looked up where it is None.
    Raises:
        NotLiftable: the scope does something else; the message is a sentence.
    """
    return _Lift(sdfg, state, str(entry.map.label), outside).scope(entry)


def lift_tasklet(sdfg: dace.SDFG, state: dace.SDFGState, tasklet: nodes.Tasklet) -> tuple[Statement, ...]:
    """The statements of a tasklet that stands outside maps; those that feed it directly are part of it.

    Raises:
        NotLiftable: it does something else; the message is a sentence.
    """
    return _Lift(sdfg, state, str(tasklet.label)).single(tasklet)


@dataclass(kw_only=True)
class _Level:
    """Where the walk is: names in force, and the box that they run over."""

    names: dict[str, Index]
    params: tuple[sympy.Basic, ...] = ()
    extents: tuple[Index, ...] = ()
    reduced: tuple[sympy.Basic, ...] = ()
    reduced_extents: tuple[Index | Scalar, ...] = ()


class _Lift:
    def __init__(
        self,
        sdfg: dace.SDFG,
        state: dace.SDFGState,
        label: str,
        outside: Collection[str] | None = None,
    ) -> None:
        self.sdfg, self.state, self.label, self.outside = sdfg, state, label, outside
        self.registers: dict[str, Scalar] = {}
        self.results: dict[tuple[int, str], Scalar] = {}
        self.found: list[Statement] = []
        self.children: dict[nodes.MapEntry, list[nodes.Node]] = {}

    def scope(self, entry: nodes.MapEntry) -> tuple[Statement, ...]:
        self.children = nested_nodes(self.state, entry)
        self._scope(entry, self._outside(entry.map.params))
        return tuple(self.found)

    def single(self, tasklet: nodes.Tasklet) -> tuple[Statement, ...]:
        for edge in self.state.in_edges(tasklet):
            if isinstance(edge.src, nodes.Tasklet):
                self.single(edge.src)
        self.found.clear()
        self._tasklet(tasklet, self._outside(()))
        return tuple(self.found)

    def _outside(self, params: Sequence[str]) -> _Level:
        return _Level(names={str(s): symbolic.symbol(str(s)) for s in self.sdfg.symbols if s not in params})

    def _scope(self, entry: nodes.MapEntry, level: _Level) -> None:
        inner = self._entered(entry, level)
        for node in self.children[entry]:
            match node:
                case nodes.Tasklet():
                    self._tasklet(node, inner)
                case nodes.MapEntry():
                    self._scope(node, inner)
                case nodes.MapExit():
                    continue
                case nodes.AccessNode():
                    self._access(node, inner)
                case _:
                    raise NotLiftable(f"{type(node).__name__} {node} stands in the scope")

    def _entered(self, entry: nodes.MapEntry, level: _Level) -> _Level:
        names, params, extents = dict(level.names), [*level.params], [*level.extents]
        reduced, lengths = [*level.reduced], [*level.reduced_extents]
        sums = any(
            self._is_register(e.data.data)
            for e in self.state.out_edges(exit_among(self.children[entry], entry))
        )
        dynamic = self._dynamic(entry, level)
        for name, (low, high, step) in zip(entry.map.params, entry.map.range.ranges, strict=True):
            start, last = (rename(as_index(v), {**names, **_indices(dynamic)}) for v in (low, high))
            step = as_index(step)
            data = [str(s) for s in getattr(last, "free_symbols", ()) if str(s) in dynamic]
            extent: Index | Scalar
            if data:
                if step != 1 or start != 0 or not sums:
                    raise NotLiftable(f"the range of {name} is data")
                extent = dynamic[data[0]]
            else:
                extent = as_index(last - start + 1) if step == 1 else as_index(_steps(last - start, step) + 1)
            if sums:
                parameter = _REDUCED[len(reduced)]
                reduced.append(parameter)
                lengths.append(extent)
            else:
                parameter = _POINT[len(params)]
                params.append(parameter)
                extents.append(extent)
            names[name] = as_index(start + parameter * step)
        return _Level(
            names=names, params=tuple(params), extents=tuple(extents), reduced=tuple(reduced),
            reduced_extents=tuple(lengths),
        )  # fmt: skip

    def _dynamic(self, entry: nodes.MapEntry, level: _Level) -> dict[str, Scalar]:
        return {
            e.dst_conn: self._element(e, level)(())
            for e in self.state.in_edges(entry)
            if e.dst_conn and not e.dst_conn.startswith("IN_")
        }

    def _tasklet(self, tasklet: nodes.Tasklet, level: _Level) -> None:
        if tasklet.language is not dtypes.Language.Python:
            raise NotLiftable(f"tasklet {tasklet.label} is written in {tasklet.language.name}")
        inputs = {e.dst_conn: self._element(e, level) for e in self.state.in_edges(tasklet) if e.dst_conn}
        try:
            values = parse_tasklet(cast_type("list[ast.stmt]", tasklet.code.code), inputs, level.names)
        except UnreadableTasklet as reason:
            raise NotLiftable(f"tasklet {tasklet.label}: {reason}") from reason
        for edge in self.state.out_edges(tasklet):
            if not edge.src_conn:
                continue
            if edge.src_conn not in values:
                raise NotLiftable(f"tasklet {tasklet.label} writes at a position that is data")
            self._written(edge, values[edge.src_conn], level)

    def _written(self, edge: Any, value: Scalar, level: _Level) -> None:
        """Follow a value out of maps to a register, another tasklet or an array."""
        memlet, target = edge.data, edge.dst
        if isinstance(target, nodes.Tasklet):
            self.results[id(edge.src), edge.src_conn] = value
            return
        array = str(memlet.data)
        operator = conflict_operator(memlet.wcr)
        value = cast(value, self.sdfg.arrays[array].dtype)
        if self._is_register(array):
            self._store(array, value, operator, level)
            return
        if level.reduced:
            raise NotLiftable(f"{array} is written inside a reduction")
        if operator not in (None, "sum"):
            raise NotLiftable(f"writes to {array} come together by {memlet.wcr}")
        index = tuple(self._point(d, level) for d in memlet.subset.ranges)
        self.found.append(
            Statement(
                label=self.label, target=array, index=index, params=level.params,
                extents=level.extents, value=value, resolves=operator,
            )
        )  # fmt: skip

    def _store(self, array: str, value: Scalar, operator: _Operator | None, level: _Level) -> None:
        if operator is None:
            if level.reduced:
                raise NotLiftable(f"register {array} keeps one of many values")
            self.registers[array] = value
            return
        start = self.registers.get(array)
        total = reduce_over(
            operator,
            level.reduced,
            level.reduced_extents,
            value,
            accumulate=self.sdfg.arrays[array].dtype,
        )
        if start is not None and not _is_identity(start, operator):
            total = apply({"sum": "add", "prod": "mul"}.get(operator, operator), start, total)
        self.registers[array] = total

    def _access(self, node: nodes.AccessNode, level: _Level) -> None:
        if not self._is_register(node.data):
            raise NotLiftable(f"{node.data} is read and written inside the scope")
        for edge in self.state.in_edges(node):
            # an element copied into the register
            if isinstance(edge.src, nodes.MapEntry) and not edge.data.is_empty():
                if str(edge.data.data) == node.data:
                    raise NotLiftable(f"the copy into {node.data} does not say what it reads")
                value = self._element(edge, level)(())
                self.registers[node.data] = cast(value, self.sdfg.arrays[node.data].dtype)
            elif isinstance(edge.src, nodes.AccessNode) and not edge.data.is_empty():
                value = self.registers[edge.src.data]
                self.registers[node.data] = cast(value, self.sdfg.arrays[node.data].dtype)

    def _is_register(self, array: str | None) -> bool:
        if array is None:
            return False
        desc = self.sdfg.arrays[array]
        return desc.transient and desc.total_size == 1 and self._is_inside(array)

    def _is_inside(self, array: str) -> bool:
        if self.outside is None:
            self.outside = arrays_outside(self.state)
        return array not in self.outside

    def _element(self, edge: Any, level: _Level) -> Element:
        """The elements that a connector brings."""
        if isinstance(edge.src, nodes.Tasklet):
            value = self.results[id(edge.src), edge.src_conn]
            return lambda _: value
        array = str(edge.data.data)
        if self._is_register(array):
            return lambda _: self.registers[array]
        desc = self.sdfg.arrays[array]
        ranges = edge.data.subset.ranges

        def element(positions: tuple[Scalar, ...]) -> Scalar:
            whole = [d for d, (low, high, _) in enumerate(ranges) if str(low) != str(high)]
            if len(positions) == len(ranges):
                whole = list(range(len(ranges)))
            if len(positions) != len(whole):
                raise NotLiftable(f"{array} is read at {len(positions)} positions of {len(whole)}")
            given = dict(zip(whole, positions, strict=True))
            index: list[Index | Scalar] = []
            for d, bounds in enumerate(ranges):
                low = rename(as_index(bounds[0]), level.names)
                if d not in given:
                    index.append(low)
                    continue
                place = given[d]
                plain = place.data if place.op in ("literal", "index") else None
                if plain is not None:
                    index.append(as_index(plain + low))
                else:
                    index.append(place if low == 0 else place + low)
            return read(array, desc.dtype, index, tuple(as_index(s) for s in desc.shape))

        return element

    def _point(self, bounds: Sequence[Any], level: _Level) -> Index:
        low, high, _ = bounds
        if str(low) != str(high):
            raise NotLiftable(f"a tasklet writes the range {low}:{high}")
        return rename(as_index(low), level.names)


def _steps(reach: Any, step: Any) -> Any:
    """How many steps fit; in whole numbers, as C++ divides them."""
    reach = sympy.sympify(reach)
    if reach.is_number or not sympy.sympify(step).is_positive:
        return sympy.floor(reach / step)
    return symbolic.int_floor(reach, step)


def conflict_operator(wcr: str | None) -> _Operator | None:
    """How a write-conflict function brings two values together; None where there is none."""
    if wcr is None:
        return None
    function = ast.parse(str(wcr).strip(), mode="eval").body
    assert isinstance(function, ast.Lambda), f"{wcr} is a function of two values"
    names = {argument.arg: name for argument, name in zip(function.args.args, "xy", strict=True)}
    for node in ast.walk(function.body):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = names[node.id]
    body = re.sub(r"\s", "", ast.unparse(function.body))
    if body not in _OPERATORS:
        raise NotLiftable(f"writes come together by {wcr}")
    return _OPERATORS[body]


def _is_identity(value: Scalar, operator: str) -> bool:
    start = identity(operator, value.dtype)
    return value.op == "literal" and value.data == start.data


def _indices(dynamic: Mapping[str, Scalar]) -> Names:
    return {name: symbolic.symbol(name) for name in dynamic}
