"""Outlining: every top-level scope of a network becomes a kernel that knows neither names nor offsets.

Two scopes that differ only in which arrays they touch are one kernel, so 24 equal layers compile one layer's
kernels. A kernel is identified by its canonical text; the SDFG behind it is built once for each distinct
text.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dace
import sympy
from dace import dtypes
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.errors import UnsupportedProgramError
from daceml.sdfg.access import add_access
from daceml.sdfg.scopes import exit_among, scope_nodes
from daceml.sdfg.type_order import order_types

if TYPE_CHECKING:
    from dace.sdfg.graph import MultiConnectorEdge

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One compiled unit: a function of pointers and symbols. Kernels of the same text are equal.

    Attributes:
        name: `k_` and a hash of `text`; a C identifier.
        text: the canonical text, stable between processes.
        sdfg: one state with one scope; arguments `a00, a01, …`, symbols `s00, …`.
    """

    name: str
    text: str
    sdfg: dace.SDFG = field(compare=False)

    @property
    def on_device(self) -> bool:
        """Whether its map is one over blocks of a device's threads."""
        (state,) = self.sdfg.states()
        maps = (n.map for n in state.nodes() if isinstance(n, nodes.MapEntry))
        return any(m.schedule is dtypes.ScheduleType.GPU_Device for m in maps)


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """A kernel applied to arrays of the network.

    Attributes:
        arguments: network array behind `a00, a01, …`.
        reads, writes: the same arrays, by what the kernel does with them.
        symbols: network symbol behind `s00, …`.
        label: where the scope came from, for people.
        starts: element of each argument's array that the kernel takes for the first: 27 copies into the parts
            of one array are one kernel.
    """

    kernel: Kernel
    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    symbols: tuple[str, ...]
    label: str
    starts: tuple[int, ...]


class Outliner:
    """Outlines the scopes of networks; equal scopes share a kernel."""

    def __init__(self, *, final: bool = False) -> None:
        """
        Args:
            final: no scope changes any more once it was outlined, so that it is looked at only once.
        """
        order_types()
        self.kernels: dict[str, Kernel] = {}
        self._calls: dict[nodes.MapEntry, KernelCall] | None = {} if final else None

    def outline(self, sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> KernelCall:
        """The kernel of one top-level map scope, and what it is applied to. Does not change the SDFG."""
        if self._calls is None:
            return self._outlined(sdfg, state, entry)
        if entry not in self._calls:
            self._calls[entry] = self._outlined(sdfg, state, entry)
        return self._calls[entry]

    def _outlined(self, sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> KernelCall:
        scope = _Scope(sdfg, state, entry)
        text = scope.text()
        kernel = self.kernels.get(text)
        if kernel is None:
            name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:20]
            kernel = Kernel(name=name, text=text, sdfg=scope.build(name))
            self.kernels[text] = kernel
        return KernelCall(
            kernel=kernel,
            arguments=tuple(scope.arguments),
            reads=tuple(scope.reads),
            writes=tuple(scope.writes),
            symbols=tuple(scope.symbols),
            label=entry.map.label,
            starts=tuple(scope.start(array) for array in scope.arguments),
        )


def canonical_text(
    sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry
) -> tuple[str, tuple[str, ...]]:
    """What tells the kernel of a top-level map scope from others, and the network's symbols in it."""
    order_types()
    scope = _Scope(sdfg, state, entry)
    return scope.text(), tuple(scope.symbols)


class _Scope:
    """One top-level scope, with the canonical names of everything that is not its own."""

    def __init__(self, sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> None:
        self.sdfg, self.state, self.entry = sdfg, state, entry
        self.nodes = scope_nodes(state, entry)
        self.exit = exit_among(self.nodes, entry)
        self.index = {node: i for i, node in enumerate(self.nodes)}
        self.reads = _unique(e.data.data for e in state.in_edges(entry) if e.data.data is not None)
        self.writes = _unique(e.data.data for e in state.out_edges(self.exit) if e.data.data is not None)
        self.arguments = _unique([*self.reads, *self.writes])
        # A scatter has an access node of its target inside.
        inside = _unique(n.data for n in self.nodes if isinstance(n, nodes.AccessNode))
        self.locals = [a for a in inside if a not in self.arguments]
        self.edges: list[MultiConnectorEdge[dace.Memlet]] = [
            e for n in self.nodes if n is not self.exit for e in state.out_edges(n)
        ]
        self.names: dict[str, str] = {a: f"a{i:02d}" for i, a in enumerate(self.arguments)}
        self.names |= {a: f"t{i:02d}" for i, a in enumerate(self.locals)}
        self.origins = self._origins()
        self.symbols: list[str] = []
        self.ports: dict[tuple[nodes.Node, str], int] = {}

    def _origins(self) -> dict[str, tuple[int, ...]]:
        """Array -> the least index in each dimension that is accessed; without those that are all 0."""
        found: dict[str, tuple[int, ...]] = {}
        ends = (*self.state.in_edges(self.entry), *self.state.out_edges(self.exit))
        memlets = [edge.data for edge in (*ends, *self.edges) if not edge.data.is_empty()]
        if any(not isinstance(m.subset, Range) or m.other_subset is not None for m in memlets):
            return {}  # a scope that somebody else wrote: it stays as it is
        for edge in ends:
            array = edge.data.data
            if array is None:
                continue
            subset: Any = edge.data.subset
            strides = self.sdfg.arrays[array].strides
            least = tuple(
                max(0, _known(low) or 0) if _known(stride) is not None else 0
                for (low, _, _), stride in zip(subset.ranges, strides, strict=True)
            )
            found[array] = tuple(map(min, found.get(array, least), least))
        return {array: origin for array, origin in found.items() if any(origin)}

    def start(self, array: str) -> int:
        """The element of an array in memory that is the kernel's first."""
        origin = self.origins.get(array)
        if origin is None:
            return 0
        strides = self.sdfg.arrays[array].strides
        return sum(at * int(stride) for at, stride in zip(origin, strides, strict=True) if at)

    def _from_start(self, memlet: dace.Memlet) -> Any:
        """What a memlet covers, as the kernel counts."""
        origin = self.origins.get(memlet.data or "")
        subset: Any = memlet.subset
        if origin is None:
            return subset
        # a memlet between two loops may cover a whole dimension, more than what the loops access of it
        moved = Range(
            [
                (0 if (_known(b - o) or 0) < 0 else b - o, e - o, s)
                for (b, e, s), o in zip(subset.ranges, origin, strict=True)
            ]
        )
        moved.tile_sizes = list(subset.tile_sizes)
        return moved

    def text(self) -> str:
        """The canonical text; fills `symbols` in order of first appearance."""
        lines = [f"arg {self.names[a]} {self._describe(self.sdfg.arrays[a])}" for a in self.arguments]
        lines += [f"local {self.names[a]} {self._describe(self.sdfg.arrays[a])}" for a in self.locals]
        params: dict[str, str] = {}
        for i, node in enumerate(self.nodes):
            lines.append(f"{i} {self._describe_node(node, params)}")
        first, last = self.state.in_edges(self.entry), self.state.out_edges(self.exit)
        for edge in first:
            lines.append(
                f"in {self._port(self.entry, edge.dst_conn)} {self._describe_memlet(edge.data, params)}"
            )
        for edge in self.edges:
            source, target = self._port(edge.src, edge.src_conn), self._port(edge.dst, edge.dst_conn)
            lines.append(f"{source} -> {target} {self._describe_memlet(edge.data, params)}")
        for edge in last:
            lines.append(
                f"out {self._port(self.exit, edge.src_conn)} {self._describe_memlet(edge.data, params)}"
            )
        return "\n".join(lines)

    def _port(self, node: nodes.Node, connector: str | None) -> str:
        """A node's number and connector; connectors of maps are numbered, since their names carry array
        names."""
        if isinstance(node, nodes.MapEntry | nodes.MapExit) and connector is not None:
            direction, _, base = connector.partition("_")
            connector = f"{direction}_{self.ports.setdefault((node, base), len(self.ports))}"
        return f"{self.index[node]}.{connector}"

    def _describe(self, desc: dace.data.Data) -> str:
        sizes = ", ".join(map(str, desc.shape))
        strides = ", ".join(map(str, desc.strides))
        kind = "scalar" if isinstance(desc, dace.data.Scalar) else "array"
        text = f"{kind} {desc.dtype.to_string()} [{sizes}] strides [{strides}] {desc.storage.name}"
        return self._canonical(text, {})

    def _describe_node(self, node: nodes.Node, params: dict[str, str]) -> str:
        match node:
            case nodes.MapEntry():
                for param in node.map.params:
                    # loops over vector parameters are compiled in another way
                    params[param] = f"{'v' if param.startswith('v') else 'p'}{len(params)}"
                ranges = self._canonical(str(node.map.range), params)
                named = ", ".join(params[p] for p in node.map.params)
                return f"map {named} in {ranges} {node.map.schedule.name} collapse {node.map.collapse}"
            case nodes.MapExit():
                return f"exit of {next(i for i, n in enumerate(self.nodes) if _same_map(n, node))}"
            case nodes.Tasklet():
                return f"tasklet {node.language.name} {{{self._canonical(node.code.as_string, params)}}}"
            case nodes.AccessNode():
                return f"access {self.names[node.data]}"
            case _:
                raise UnsupportedProgramError(
                    f"a kernel cannot contain a {type(node).__name__}",
                    where=f"{node} in {self.entry.map.label}",
                    why="kernels are maps, tasklets and local arrays only",
                    fix="expand library nodes and inline nested SDFGs before outlining",
                )

    def _describe_memlet(self, memlet: dace.Memlet, params: Mapping[str, str]) -> str:
        if memlet.is_empty():
            return "-"
        assert memlet.data is not None, "only an empty memlet has no array"
        text = f"{self.names[memlet.data]}[{self._canonical(_subset_text(self._from_start(memlet)), params)}]"
        if memlet.other_subset is not None:
            text += f" -> [{self._canonical(_subset_text(memlet.other_subset), params)}]"
        if memlet.wcr is not None:
            text += f" wcr {memlet.wcr}"
        return text + (" dynamic" if memlet.dynamic else "")

    def _canonical(self, text: str, params: Mapping[str, str]) -> str:
        return _WORD.sub(lambda m: self._canonical_word(m.group(), params), text)

    def _canonical_word(self, word: str, params: Mapping[str, str]) -> str:
        if word in params:
            return params[word]
        if word in self.sdfg.symbols:
            if word not in self.symbols:
                self.symbols.append(word)
            return f"s{self.symbols.index(word):02d}"
        return word

    def build(self, name: str) -> dace.SDFG:
        """A one-state SDFG of a copy of this scope under canonical names."""
        kernel = dace.SDFG(name)
        symbols = {s: f"s{i:02d}" for i, s in enumerate(self.symbols)}
        for old, new in symbols.items():
            kernel.add_symbol(new, self.sdfg.symbols[old])
        for array in [*self.arguments, *self.locals]:
            desc = self.sdfg.arrays[array]
            shape = [_replaced(s, symbols) for s in desc.shape]
            strides = [_replaced(s, symbols) for s in desc.strides]
            kernel.add_array(
                self.names[array],
                shape,
                desc.dtype,
                strides=strides,
                storage=desc.storage,
                transient=array in self.locals,
            )
        state = kernel.add_state("scope")
        copies = self._copy_nodes(symbols)
        for node in copies.values():
            state.add_node(node)

        def memlet(edge: MultiConnectorEdge[dace.Memlet]) -> dace.Memlet:
            copied = copy.deepcopy(edge.data)
            if copied.data is not None:
                copied.subset = self._from_start(copied)
                copied.data = self.names[copied.data]
                if symbols:
                    copied.replace(symbols)
            return copied

        for edge in self.edges:
            state.add_edge(copies[edge.src], edge.src_conn, copies[edge.dst], edge.dst_conn, memlet(edge))
        outside = {a: add_access(state, self.names[a]) for a in self.reads}
        for edge in self.state.in_edges(self.entry):
            source = outside[edge.data.data] if edge.data.data is not None else None
            if source is not None:
                state.add_edge(source, None, copies[self.entry], edge.dst_conn, memlet(edge))
        written = {a: add_access(state, self.names[a]) for a in self.writes}
        for edge in self.state.out_edges(self.exit):
            if edge.data.data is not None:
                state.add_edge(copies[self.exit], edge.src_conn, written[edge.data.data], None, memlet(edge))
        return kernel

    def _copy_nodes(self, symbols: Mapping[str, str]) -> dict[nodes.Node, nodes.Node]:
        copies: dict[nodes.Node, nodes.Node] = {}
        maps: dict[int, nodes.Map] = {}
        for node in self.nodes:
            match node:
                case nodes.MapEntry() | nodes.MapExit():
                    if id(node.map) not in maps:
                        copied = copy.deepcopy(node.map)
                        # as symbols of dace: a plain one would not be found in a range
                        copied.range.replace({old: dace.symbol(new) for old, new in symbols.items()})
                        maps[id(node.map)] = copied
                    twin = type(node)(maps[id(node.map)])
                    twin.in_connectors = dict(node.in_connectors)
                    twin.out_connectors = dict(node.out_connectors)
                case nodes.AccessNode():
                    twin = nodes.AccessNode(self.names[node.data])
                case _:
                    twin = copy.deepcopy(node)
                    if symbols and isinstance(twin, nodes.Tasklet):
                        code = _WORD.sub(lambda m: symbols.get(m.group(), m.group()), twin.code.as_string)
                        twin.code = dace.properties.CodeBlock(code, twin.language)
            copies[node] = twin
        return copies


def _known(number: Any) -> int | None:
    """A number; None for an expression."""
    return int(number) if isinstance(number, int | sympy.Integer) else None


def _subset_text(subset: Any) -> str:
    """What `str` says of a subset."""
    if not isinstance(subset, Range):
        return str(subset)
    return ", ".join(map(_dimension_text, subset.ranges, subset.tile_sizes))


# Equal layers read and write at the same positions; printing an expression takes longer than all else.
@lru_cache(maxsize=1 << 14)
def _dimension_text(bounds: tuple[Any, Any, Any], tile_size: Any) -> str:
    return Range.dim_to_string(bounds, tile_size)


def _same_map(node: nodes.Node, exit_node: nodes.MapExit) -> bool:
    return isinstance(node, nodes.MapEntry) and node.map is exit_node.map


def _replaced(size: object, symbols: Mapping[str, str]) -> object:
    if isinstance(size, int) or not symbols:
        return size
    return dace.symbolic.pystr_to_symbolic(_WORD.sub(lambda m: symbols.get(m.group(), m.group()), str(size)))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
