"""Hints for what a loop in blocks will read soon: the next blocks, or the same place of the next row.

A processor finds out by itself what comes next within a page of 4 KiB, and nothing beyond; while it waits for
that, it has nothing to store past the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dace
import sympy
from dace import dtypes, symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.blocks import Block
from daceml.sdfg.sizes import size, size_bytes

# Elements of a block
WIDTH = 128
# Bytes; smaller arrays are in a cache.
_FEWEST_BYTES = 2**22
# Elements of a row that is gone through several times, and stays in the nearest cache
_LONGEST_ROW = 4096


@dataclass(frozen=True, kw_only=True)
class Read:
    """What to fetch.

    Attributes:
        array: large, read along memory.
        elements: how far ahead.
        row: of the array, which only other loops of the nest read; None: the loop itself reads it.
    """

    array: str
    elements: int
    row: Memlet | None = None


def reads_ahead(
    sdfg: dace.SDFG, state: dace.SDFGState, inside: Sequence[nodes.Node], loop: nodes.MapEntry
) -> list[Read]:
    """What should be fetched in front of the blocks of a loop.

    Args:
        inside: all nodes of the top-level map; its entry is the first.
        loop: the map that will go in blocks.
    """
    param, count = loop.map.params[-1], int(loop.map.range.size()[-1])
    own = {
        str(e.data.data): e.data
        for e in state.out_edges(loop)
        if isinstance(e.dst, nodes.Tasklet) and _is_large(sdfg, e.data) and along_memory(sdfg, e.data, param)
    }
    others = [n for n in inside if isinstance(n, nodes.MapEntry) and n is not inside[0] and n is not loop]
    elsewhere = {e.data.data for n in others for e in state.in_edges(n)}
    found: list[Read] = []
    for array in own:
        if array not in elsewhere:
            found.append(Read(array=array, elements=2 * min(count, WIDTH)))
        elif count <= _LONGEST_ROW:
            found.append(Read(array=array, elements=count))
    if loop is inside[0] or len(loop.map.params) > 1 or count > _LONGEST_ROW:
        return found
    rows = {str(e.data.data): e.data for e in _from(state, inside[0], others) if _is_row(sdfg, e.data, count)}
    return [*found, *(Read(array=a, elements=count, row=row) for a, row in rows.items() if a not in own)]


def _from(state: dace.SDFGState, entry: nodes.Node, loops: Iterable[nodes.MapEntry]) -> list[Any]:
    return [e for n in loops for e in state.in_edges(n) if e.src is entry and not e.data.is_empty()]


def has_bytes(sdfg: dace.SDFG, array: str, fewest: int) -> bool:
    """Whether an array is known to have so many bytes."""
    amount = size_bytes(sdfg.arrays[array])
    return isinstance(amount, int) and amount >= fewest


def _is_large(sdfg: dace.SDFG, memlet: Memlet) -> bool:
    return memlet.data is not None and has_bytes(sdfg, memlet.data, _FEWEST_BYTES)


def _is_row(sdfg: dace.SDFG, memlet: Memlet, count: int) -> bool:
    """Whether a memlet is so many neighbours in memory, of a large array."""
    if not _is_large(sdfg, memlet):
        return False
    subset: Any = memlet.subset
    *before, last = subset.size()
    return all(s == 1 for s in before) and last == count and size(sdfg.arrays[memlet.data].strides[-1]) == 1


def along_memory(sdfg: dace.SDFG, memlet: Memlet, param: str) -> bool:
    """Whether a loop's parameter counts neighbours in memory."""
    p: Any = symbolic.symbol(param)
    subset: Any = memlet.subset
    steps: list[tuple[Any, object]] = []
    for (low, high, _), stride in zip(subset.ranges, sdfg.arrays[memlet.data].strides, strict=True):
        place: Any = sympy.sympify(low)
        if str(low) != str(high):
            return False
        if p in place.free_symbols:
            steps.append((sympy.expand(place).coeff(p), size(stride)))
    return steps == [(1, 1)]


def fetch(sdfg: dace.SDFG, state: dace.SDFGState, top: nodes.MapEntry, block: Block, read: Read) -> None:
    """Say in front of a block what will be read soon. Mutates the state.

    Args:
        top: the top-level map.
    """
    inner, array = block.entry, read.array
    source: Any
    if read.row is None:
        (edge,) = [e for e in state.in_edges(inner) if e.data.data == array]
        source, passed, memlet = edge.src, edge.src_conn, edge.data
    else:
        source = state.entry_node(inner)
        memlet = _part(read.row, block)
        passed = next(e.src_conn for e in state.out_edges(top) if e.data.data == array)
        if source is not top:
            source.add_in_connector("IN_" + array)
            source.add_out_connector("OUT_" + array)
            state.add_edge(top, passed, source, "IN_" + array, Memlet.from_memlet(read.row))
            passed = "OUT_" + array
    tasklet = nodes.Tasklet(
        "fetch",
        {"_in": dtypes.pointer(sdfg.arrays[array].dtype)},
        {},
        f"fetch(_in, {read.elements}, {symbolic.symstr(block.extent)});",
        language=dtypes.Language.CPP,
    )
    state.add_edge(source, passed, tasklet, "_in", Memlet.from_memlet(memlet))
    state.add_edge(tasklet, None, inner, None, Memlet())


def _part(row: Memlet, block: Block) -> Memlet:
    """What belongs to a block of a row."""
    subset: Any = row.subset
    *before, (low, _, _) = subset.ranges
    first = low + block.start
    return Memlet(data=row.data, subset=Range([*before, (first, first + block.extent - 1, 1)]))
