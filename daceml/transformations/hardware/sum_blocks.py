"""Long sums of floats in blocks: the error grows with the length of a block, not with that of the sum.

acc += f(k) for k in 0..K   ->   for b in 0..K / 128:
                                     part = 0
                                     part += f(128 b + k) for k in 0..128
                                     acc += part

Where there are still many blocks, they are blocks of blocks. The inner loop is the one it was, so it goes in
vectors as before. A sum that goes into an array (lanes, columns) has a part for each of its elements. Sums
are cut when the text of a kernel is written: costs and passes see one loop. Threads of a device share a sum
already; more parts would take their registers.

Source: Higham, The accuracy of floating point summation (1993), section 3: pairwise summation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dace
import sympy
from dace import dtypes, symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.access import add_access
from daceml.sdfg.blocks import free_name, rename_parameter
from daceml.sdfg.builder import conflict_resolution, new_map
from daceml.sdfg.scalar import FLOATS, HALF, identity
from daceml.sdfg.scopes import scope_nodes, top_maps
from daceml.sdfg.sizes import Size, product, size
from daceml.sdfg.tasklet_code import RESULT, print_tasklet

# Terms of a block, and terms that may follow each other without blocks
_BLOCK, _LONGEST = 128, 256
# Terms of a block that ends where a dimension of unknown size begins
_FEWEST = 16
# How often a dimension of unknown size is cut: up to 2 million terms are in blocks of 128
_CUTS = 2
# Iterations of a loop that an int counts: the parts of a cut loop would be of this type
_MOST = 2**31 - 1


def with_sums_in_blocks(sdfg: dace.SDFG) -> dace.SDFG:
    """The SDFG of a kernel, or a copy of it whose long sums are in blocks."""
    (state,) = sdfg.states()
    if not any(_cut(loop, {}) for loop in map(partial(_sum, state), _loops(state)) if loop):
        return sdfg
    cut = copy.deepcopy(sdfg)
    (state,) = cut.states()
    for entry in reversed(_loops(state)):  # those inside others first
        loop = _sum(state, entry)
        if loop is not None:
            _into_blocks(state, loop)
    return cut


@dataclass(frozen=True, kw_only=True)
class _Sum:
    """A loop that adds to registers.

    Attributes:
        entry, exit: of its map.
        targets: registers that it adds to.
        count: how many leading parameters are over terms: no position in a register depends on them.
        inside: terms that one iteration adds to an element.
    """

    entry: nodes.MapEntry
    exit: nodes.MapExit
    targets: tuple[str, ...]
    count: int
    inside: int

    @property
    def extents(self) -> list[Size]:
        """Of the parameters over terms."""
        return [size(e) for e in self.entry.map.range.size()[: self.count]]


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """Where a block of a loop ends: `width` iterations of a dimension and all of those behind it."""

    dimension: int
    width: int | None


def _loops(state: dace.SDFGState) -> list[nodes.MapEntry]:
    """Loops inside the kernel's map, outer ones before those inside them."""
    (top,) = top_maps(state)
    inside = scope_nodes(state, top)[1:]
    loops = [n for n in inside if isinstance(n, nodes.MapEntry)]
    return [n for n in loops if n.map.schedule is dtypes.ScheduleType.Sequential]


def _sum(state: dace.SDFGState, entry: nodes.MapEntry) -> _Sum | None:
    """What a loop adds to registers; None where it adds to none."""
    if any(low != 0 or step != 1 for low, _, step in entry.map.range.ranges):
        return None
    if any(isinstance(e, int) and e > _MOST for e in map(size, entry.map.range.size())):
        return None
    inside = scope_nodes(state, entry)
    exit_: Any = inside[-1]
    held = {n.data for n in inside if isinstance(n, nodes.AccessNode)}
    sums = [
        edge
        for edge in state.out_edges(exit_)
        if edge.data.wcr is not None and edge.data.data not in held and _is_sum(state, edge.data)
    ]
    into = [list(_terms(state, edge)) for edge in sums]
    positions = {str(s) for ends in into for e in ends if e.dst is exit_ for s in e.data.subset.free_symbols}
    count = next((d for d, p in enumerate(entry.map.params) if p in positions), len(entry.map.params))
    if not sums or not count:
        return None
    most = 1
    for ends in into:
        terms = [e for e in ends if isinstance(e.src, nodes.Tasklet)]
        most = max(most, sum(_repeated(state, term, entry, count) for term in terms))
    targets = tuple(str(edge.data.data) for edge in sums)
    return _Sum(entry=entry, exit=exit_, targets=targets, count=count, inside=most)


def _is_sum(state: dace.SDFGState, memlet: Memlet) -> bool:
    """Whether a memlet adds floats, no halves, to a register of known size."""
    desc = state.sdfg.arrays[memlet.data]
    return (
        desc.dtype in FLOATS
        and desc.dtype not in HALF
        and desc.transient
        and desc.storage is dtypes.StorageType.Register
        and memlet.wcr == conflict_resolution("sum", desc.dtype)
        and all(isinstance(size(extent), int) for extent in desc.shape)
    )


def _terms(state: dace.SDFGState, out: Any) -> Iterator[Any]:
    """The edges inside a map by which the terms of a sum reach the edge that leaves it."""
    for edge in state.in_edges_by_connector(out.src, out.src_conn.replace("OUT_", "IN_", 1)):
        yield edge
        if isinstance(edge.src, nodes.MapExit):
            yield from _terms(state, edge)


def _repeated(state: dace.SDFGState, term: Any, entry: nodes.MapEntry, count: int) -> int:
    """How often a term is added to an element in one iteration; sizes that are not known count as one."""
    positions = {str(s) for s in term.data.subset.free_symbols}
    times = 1
    while True:
        end = term.dst
        skipped = count if end.map is entry.map else 0
        extents = zip(end.map.params[skipped:], end.map.range.size()[skipped:], strict=True)
        for param, extent in extents:
            known = size(extent)
            if param not in positions and isinstance(known, int):
                times *= known
        if end.map is entry.map:
            return times
        (term,) = state.out_edges_by_connector(end, term.dst_conn.replace("IN_", "OUT_", 1))


def _cut(loop: _Sum, cuts: dict[str, int]) -> _Cut | None:
    """Where the blocks of a loop end; None where it has as few terms as a block.

    Args:
        cuts: how often the parameters of unknown size were cut already.
    """
    extents = loop.extents
    terms = product(extents)
    if isinstance(terms, int) and terms * loop.inside <= _LONGEST:
        return None
    unknown = sum(not isinstance(e, int) for e in extents)
    group, d = loop.inside, loop.count - 1
    while d >= 0:
        extent = extents[d]
        if not isinstance(extent, int) or group * extent > _BLOCK:
            break
        group *= extent
        d -= 1
    if d < 0:
        return None
    extent, width = extents[d], max(2, _BLOCK // group)
    is_last = d == loop.count - 1
    if isinstance(extent, int):
        if extent > width and (is_last or _BLOCK // group >= 2):
            return _Cut(dimension=d, width=_even(extent, width))
        before = d + 1 if not is_last else d
    elif cuts.get(loop.entry.map.params[d], 0) < (_CUTS if unknown == 1 else 1):
        if is_last or group < _FEWEST:
            return _Cut(dimension=d, width=width)
        before = d + 1
    else:
        before = d
    return _Cut(dimension=before, width=None) if before else None


def _even(extent: int, most: int) -> int:
    """A width of blocks, without a shorter block in the end where half as many terms or more do."""
    return next((n for n in range(most, most // 2, -1) if extent % n == 0), most)


def _into_blocks(state: dace.SDFGState, loop: _Sum) -> None:
    """Cut a loop, then the loop over its blocks, until no more terms follow each other than in a block."""
    cuts: dict[str, int] = {}
    while (cut := _cut(loop, cuts)) is not None:
        loop = _block(state, loop, cut, cuts)


def _block(state: dace.SDFGState, loop: _Sum, cut: _Cut, cuts: dict[str, int]) -> _Sum:
    """Put a loop over blocks around a loop; returns it. The loop keeps the terms of a block."""
    inner: nodes.Map = loop.entry.map
    taken = {p for n in state.nodes() if isinstance(n, nodes.MapEntry) for p in n.map.params}
    params, extents = list(inner.params[: cut.dimension]), loop.extents[: cut.dimension]
    if cut.width is not None:
        old, extent = inner.params[cut.dimension], loop.extents[cut.dimension]
        number = free_name("b", taken)
        taken.add(number)
        first = symbolic.symbol(number) * cut.width
        rename_parameter(state, scope_nodes(state, loop.entry), old, first + symbolic.symbol(old))
        even = isinstance(extent, int) and extent % cut.width == 0
        left: Any = cut.width if even else sympy.Min(cut.width, extent - first)
        ranges = list(inner.range.ranges)
        ranges[cut.dimension] = (0, left - 1, 1)
        inner.range = Range(ranges)
        params.append(number)
        if isinstance(extent, int):
            extents.append(-(-extent // cut.width))
        else:
            extents.append(size(symbolic.int_ceil(extent, cut.width)))
            cuts[number] = cuts.get(old, 0) + 1
    inner.params, inner.range = inner.params[cut.dimension :], Range(inner.range.ranges[cut.dimension :])
    symbols = [symbolic.symbol(param) for param in params]
    entry, exit_ = new_map(inner.label, symbols, extents, dtypes.ScheduleType.Sequential)
    state.add_nodes_from([entry, exit_])
    for edge in list(state.in_edges(loop.entry)):
        _through_entry(state, edge, entry)
    for edge in list(state.out_edges(loop.exit)):
        _through_exit(state, edge, loop, (entry, exit_), taken)
    return _Sum(entry=entry, exit=exit_, targets=loop.targets, count=len(params), inside=1)


def _through_entry(state: dace.SDFGState, edge: Any, around: nodes.MapEntry) -> None:
    """Let what a loop takes pass the map around it."""
    state.remove_edge(edge)
    connector = edge.dst_conn
    state.add_edge(edge.src, edge.src_conn, around, connector, edge.data)
    if connector is None:
        if not state.edges_between(around, edge.dst):
            state.add_edge(around, None, edge.dst, None, Memlet())
        return
    around.add_in_connector(connector)
    if not connector.startswith("IN_"):  # the length of a segment: a symbol in all that is inside
        edge.dst.remove_in_connector(connector)
        return
    out = connector.replace("IN_", "OUT_", 1)
    around.add_out_connector(out)
    state.add_edge(around, out, edge.dst, connector, copy.deepcopy(edge.data))


def _through_exit(
    state: dace.SDFGState,
    edge: Any,
    loop: _Sum,
    around: tuple[nodes.MapEntry, nodes.MapExit],
    taken: set[str],
) -> None:
    """Let what a loop writes pass the map around it; what it adds to a register is for the block's part."""
    terms = list(_terms(state, edge))
    state.remove_edge(edge)
    out = edge.src_conn
    entry, exit_ = around
    connector = out.replace("OUT_", "IN_", 1)
    exit_.add_in_connector(connector)
    exit_.add_out_connector(out)
    state.add_edge(exit_, out, edge.dst, edge.dst_conn, edge.data)
    if edge.data.data not in loop.targets:
        state.add_edge(loop.exit, out, exit_, connector, copy.deepcopy(edge.data))
        return
    part = _Part(state, edge.data)
    for term in terms:
        term.data = part.of(term.data)
    before, after = add_access(state, part.name), add_access(state, part.name)
    part.start(entry, before, taken)
    state.add_edge(before, None, loop.entry, None, Memlet())
    state.add_edge(loop.exit, out, after, None, part.whole(edge.data.wcr))
    part.add(after, exit_, connector, edge.data, taken)


class _Part:
    """The sums of a block: a register as large as what the loop adds to, or may add to."""

    def __init__(self, state: dace.SDFGState, target: Memlet) -> None:
        subset: Any = target.subset
        self.state = state
        desc = state.sdfg.arrays[target.data]
        self.dtype = desc.dtype
        self.low: list[Any] = []
        self.shape: list[int] = []
        for (low, _, _), extent, all_of_it in zip(subset.ranges, subset.size(), desc.shape, strict=True):
            known = size(extent)
            self.low.append(low if isinstance(known, int) else 0)
            self.shape.append(known if isinstance(known, int) else int(all_of_it))
        self.name, _ = state.sdfg.add_transient(
            f"{target.data}_part",
            self.shape,
            self.dtype,
            storage=dtypes.StorageType.Register,
            find_new_name=True,
        )

    def of(self, memlet: Memlet) -> Memlet:
        """The memlet of a term, for the part in the place of the whole."""
        subset: Any = memlet.subset
        ranges = [
            (begin - low, end - low, step)
            for (begin, end, step), low in zip(subset.ranges, self.low, strict=True)
        ]
        return Memlet(data=self.name, subset=Range(ranges), wcr=memlet.wcr)

    def start(self, around: nodes.Node, before: nodes.AccessNode, taken: set[str]) -> None:
        """The start of the sums in a block."""
        code = print_tasklet(identity("sum", self.dtype))
        tasklet = nodes.Tasklet("start", {}, {RESULT: None}, code.code, debuginfo=dtypes.DebugInfo(0))
        self.state.add_node(tasklet)
        places, loop = self._places(taken)
        memlet = Memlet(data=self.name, subset=Range([(p, p, 1) for p in places]))
        if loop is None:
            self.state.add_edge(around, None, tasklet, None, Memlet())
            self.state.add_edge(tasklet, RESULT, before, None, memlet)
            return
        self.state.add_edge(around, None, loop[0], None, Memlet())
        self.state.add_edge(loop[0], None, tasklet, None, Memlet())
        self._leave(tasklet, memlet, loop[1], before, None, self.whole())

    def add(
        self, after: nodes.AccessNode, around: nodes.MapExit, connector: str, target: Memlet, taken: set[str]
    ) -> None:
        """The sums of a block to those of the loop."""
        inputs: dict[str, None] = {"_a0": None}
        code = f"{RESULT} = _a0"
        tasklet = nodes.Tasklet("add", inputs, {RESULT: None}, code, debuginfo=dtypes.DebugInfo(0))
        self.state.add_node(tasklet)
        places, loop = self._places(taken)
        taken_from = Memlet(data=self.name, subset=Range([(p, p, 1) for p in places]))
        at = [low + place for low, place in zip(self.low, places, strict=True)]
        memlet = Memlet(data=target.data, subset=Range([(p, p, 1) for p in at]), wcr=target.wcr)
        if loop is None:
            self.state.add_edge(after, None, tasklet, "_a0", taken_from)
            self.state.add_edge(tasklet, RESULT, around, connector, memlet)
            return
        loop[0].add_in_connector("IN_" + self.name)
        loop[0].add_out_connector("OUT_" + self.name)
        self.state.add_edge(after, None, loop[0], "IN_" + self.name, self.whole())
        self.state.add_edge(loop[0], "OUT_" + self.name, tasklet, "_a0", taken_from)
        self._leave(tasklet, memlet, loop[1], around, connector, copy.deepcopy(target))

    def whole(self, wcr: str | None = None) -> Memlet:
        """All of its elements."""
        return Memlet(data=self.name, subset=Range([(0, e - 1, 1) for e in self.shape]), wcr=wcr)

    def _leave(
        self,
        tasklet: nodes.Tasklet,
        memlet: Memlet,
        end: nodes.MapExit,
        target: nodes.Node,
        connector: str | None,
        covered: Memlet,
    ) -> None:
        """Edges from a tasklet through the end of its map."""
        end.add_in_connector("IN_" + str(memlet.data))
        end.add_out_connector("OUT_" + str(memlet.data))
        self.state.add_edge(tasklet, RESULT, end, "IN_" + str(memlet.data), memlet)
        self.state.add_edge(end, "OUT_" + str(memlet.data), target, connector, covered)

    def _places(self, taken: set[str]) -> tuple[Sequence[Any], tuple[nodes.MapEntry, nodes.MapExit] | None]:
        """A position in the part, and the map over all of them; None where there is one."""
        names: list[str] = []
        for extent in self.shape:
            if extent > 1:
                names.append(free_name("v", taken | set(names)))
        if not names:
            return [0] * len(self.shape), None
        params = [symbolic.symbol(name) for name in names]
        left = iter(params)
        places = [next(left) if extent > 1 else 0 for extent in self.shape]
        loop = new_map("part", params, [e for e in self.shape if e > 1], dtypes.ScheduleType.Sequential)
        self.state.add_nodes_from(loop)
        return places, loop
