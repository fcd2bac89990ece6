"""The last loop of a map in blocks: for p in 0..n  ->  for b in 0, w, 2 w, …: for v in 0..w: p = b + v."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dace
import sympy
from dace import dtypes, symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.builder import Spans, box, span, union
from daceml.sdfg.scalar import Index
from daceml.sdfg.scopes import exit_of, scope_nodes

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A loop over neighbours inside another map.

    Attributes:
        entry, exit: of the loop.
        param: from 0 on.
        start: the iteration of the loop at which the block begins.
        width: iterations of a whole block.
        extent: iterations; fewer in the last block where blocks do not divide the loop evenly.
    """

    entry: nodes.MapEntry
    exit: nodes.MapExit
    param: sympy.Symbol
    start: Index
    width: int
    extent: Index


def block_last_loop(sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry, width: int) -> Block:
    """Put the last loop of a map inside it, `width` iterations at a time. Mutates the state.

    A loop of as many iterations as a block goes inside as a whole; where it is the only one, the map is the
    block, and stays. Iterations are done in the same order as before.

    Args:
        entry: of a map whose iterations over its last parameter are independent of each other, from 0 on.
    """
    outer: nodes.Map = entry.map
    exit_: Any = exit_of(state, entry)
    count = int(outer.range.size()[-1])
    whole = count <= width
    if whole and len(outer.params) == 1 and state.entry_node(entry) is not None:
        param = symbolic.symbol(outer.params[0])
        return Block(entry=entry, exit=exit_, param=param, start=0, width=count, extent=count)
    inside = scope_nodes(state, entry)
    taken = {p for n in inside if isinstance(n, nodes.MapEntry) for p in n.map.params}
    old = outer.params[-1]
    v = symbolic.symbol(old if old.startswith("v") else free_name("v", taken))
    start = free_name("b", taken)
    first: Index = 0 if whole and len(outer.params) > 1 else symbolic.symbol(start)
    width = min(width, count)
    extent: Index = width if count % width == 0 else sympy.Min(width, count - first)
    rename_parameter(state, inside, old, first + v)
    if isinstance(first, int):
        outer.params, outer.range = outer.params[:-1], Range(outer.range.ranges[:-1])
    else:
        outer.params = [*outer.params[:-1], start]
        outer.range = Range([*outer.range.ranges[:-1], (0, count - 1, width)])
    body = nodes.Map(outer.label, [str(v)], Range([(0, extent - 1, 1)]), dtypes.ScheduleType.Sequential)
    block = Block(
        entry=nodes.MapEntry(body), exit=nodes.MapExit(body), param=v, start=first, width=width, extent=extent
    )
    state.add_nodes_from([block.entry, block.exit])
    _go_through(sdfg, state, entry, exit_, block)
    return block


def free_name(letter: str, taken: set[str]) -> str:
    """A parameter that is not taken: `b0`, `b1`, …"""
    return next(name for name in (f"{letter}{n}" for n in range(len(taken) + 1)) if name not in taken)


def rename_parameter(state: dace.SDFGState, inside: Sequence[Any], old: str, new: Index) -> None:
    """An expression in the place of a parameter, in everything behind the map's entry."""
    names: dict[Any, Any] = {symbolic.symbol(old): new}
    text = f"({symbolic.symstr(new)})"
    end, changed = exit_of(state, inside[0]), set[int]()
    for node in inside:
        if node is end:
            continue
        if node is not inside[0] and isinstance(node, nodes.MapEntry):
            node.map.range.replace(names)
        if isinstance(node, nodes.Tasklet):
            code = _WORD.sub(lambda m: text if m.group() == old else m.group(), node.code.as_string)
            if code != node.code.as_string:
                node.code = dace.properties.CodeBlock(code, node.language)
        for edge in state.out_edges(node):
            subset: Any = edge.data.subset
            if subset is not None and id(edge.data) not in changed:
                subset.replace(names)
                changed.add(id(edge.data))


def _go_through(
    sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry, exit_: nodes.MapExit, block: Block
) -> None:
    """Let all that passes the ends of a map pass those of a block inside it."""
    ranges: dict[sympy.Basic, Index] = {block.param: block.extent}
    for edge in list(state.out_edges(entry)):
        state.remove_edge(edge)
        state.add_edge(block.entry, edge.src_conn, edge.dst, edge.dst_conn, edge.data)
        if not edge.src_conn:
            if not state.in_degree(block.entry):
                state.add_edge(entry, None, block.entry, None, Memlet())
            continue
        connector = edge.src_conn.replace("OUT_", "IN_", 1)
        block.entry.add_out_connector(edge.src_conn)
        if block.entry.add_in_connector(connector):
            data = widened(sdfg, edge.data, ranges)
            state.add_edge(entry, edge.src_conn, block.entry, connector, data)
        else:
            (known,) = state.in_edges_by_connector(block.entry, connector)
            known.data = _both(sdfg, known.data, widened(sdfg, edge.data, ranges))
    for edge in list(state.in_edges(exit_)):
        state.remove_edge(edge)
        state.add_edge(edge.src, edge.src_conn, block.exit, edge.dst_conn, edge.data)
        connector = edge.dst_conn.replace("IN_", "OUT_", 1)
        block.exit.add_in_connector(edge.dst_conn)
        if block.exit.add_out_connector(connector):
            data = widened(sdfg, edge.data, ranges)
            state.add_edge(block.exit, connector, exit_, edge.dst_conn, data)
        else:
            (known,) = state.out_edges_by_connector(block.exit, connector)
            known.data = _both(sdfg, known.data, widened(sdfg, edge.data, ranges))


def widened(sdfg: dace.SDFG, memlet: Memlet, ranges: Mapping[sympy.Basic, Index]) -> Memlet:
    """What a memlet covers in all over a box; a whole dimension where that is not known."""
    spans: Spans = []
    subset: Any = memlet.subset
    for (low, high, _), size in zip(subset.ranges, sdfg.arrays[memlet.data].shape, strict=True):
        first, last = span(sympy.sympify(low), ranges), span(sympy.sympify(high), ranges)
        spans.append((0, size - 1) if first is None or last is None else (first[0], last[1]))
    return Memlet(data=memlet.data, subset=box(spans), wcr=memlet.wcr)


def _both(sdfg: dace.SDFG, first: Memlet, second: Memlet) -> Memlet:
    subsets: list[Any] = [first.subset, second.subset]
    one, other = ([(low, high) for low, high, _ in subset.ranges] for subset in subsets)
    covered = box(union(one, other, sdfg.arrays[first.data].shape))
    return Memlet(data=first.data, subset=covered, wcr=first.wcr)
