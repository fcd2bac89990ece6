"""Vectors: neighbours in memory are loaded and stored 128 bits at a time.

for i in 0..n: Y[i] = f(X[i])   ->   for b in 0, 4, ...: load x[0 .. 4) = X[b .. b + 4)
                                                         for v in 0..4: y[v] = f(x[v])
                                                         store Y[b .. b + 4) = y[0 .. 4)

Whether an address is a multiple of 16 bytes is found out at run time, for each access: torch gives views
that begin anywhere. Of the last vector only what is left over is loaded and stored. The loop over it goes to
its end all the same, where nothing else is accessed: a loop of a known length is unrolled, and what it goes
through is in registers.
"""

from __future__ import annotations

import copy
from typing import Any

import dace
import sympy
from dace import dtypes, symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.access import add_access
from daceml.sdfg.blocks import Block, block_last_loop
from daceml.sdfg.scopes import scope_nodes
from daceml.sdfg.warp_tiling import NEIGHBOUR
from daceml.transformations.hardware.gpu_flattening import is_flat, place_of, words

BYTES = 16


def use_vectors(sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> None:
    """Let a map without others inside go along memory in vectors. Mutates the SDFG, which is a kernel's own.

    Arrays that its last parameter does not go along are accessed one by one, and so are all of them where its
    extent is not known.
    """
    first, *inside, last = scope_nodes(state, entry)
    if not is_flat(sdfg, inside) or symbolic.issymbolic(entry.map.range.size()[-1]):
        return
    read = _along(sdfg, state.out_edges(first), entry.map.params)
    written = _along(sdfg, state.in_edges(last), entry.map.params)
    moved = {*read, *written}
    if not moved:
        return
    width = BYTES // max(sdfg.arrays[array].dtype.bytes for array in moved)
    while width > entry.map.range.size()[-1]:  # an address is a multiple of a power of 2
        width //= 2
    if width < 2:
        return
    last_param = entry.map.params[-1]
    others = [e for e in (*state.out_edges(first), *state.in_edges(last)) if e.data.data not in moved]
    apart = all(_stays(sdfg, edge, entry.map.params) for edge in others)
    named = any(last_param in words(n.code.as_string) for n in inside if isinstance(n, nodes.Tasklet))
    block = block_last_loop(sdfg, state, entry, width)
    if apart and not named:
        block.entry.map.range = Range([(0, width - 1, 1)])
    for array in read:
        _load(sdfg, state, block, array)
    for array in written:
        _store(sdfg, state, block, array)


def use_vectors_in_rows(sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> None:
    """Let the loops of a nest over neighbours (`sdfg/warp_tiling.py`) load and store all of them together.

    Mutates the SDFG, which is a kernel's own.
    """
    inside = [n for n in scope_nodes(state, entry) if isinstance(n, nodes.MapEntry)]
    for loop in [n for n in inside if n.map.params[-1] == str(NEIGHBOUR)]:
        first, *_, last = scope_nodes(state, loop)
        read = _along(sdfg, state.out_edges(first), loop.map.params)
        written = _along(sdfg, state.in_edges(last), loop.map.params)
        block = block_last_loop(sdfg, state, loop, int(loop.map.range.size()[-1]))
        for array in read:
            _load(sdfg, state, block, array)
        for array in written:
            _store(sdfg, state, block, array)


def _stays(sdfg: dace.SDFG, edge: Any, params: list[str]) -> bool:
    """Whether an access is at the same place for all neighbours."""
    if edge.data.is_empty():
        return True
    place = place_of(sdfg, edge.data, params)
    return place is not None and place.steps[-1] == 0


def _along(sdfg: dace.SDFG, edges: list[Any], params: list[str]) -> list[str]:
    """Arrays that all these edges access at one place, neighbours in memory for neighbours in the map."""
    places: dict[str, list[Any]] = {}
    for edge in edges:
        if not edge.data.is_empty() and not sdfg.arrays[edge.data.data].transient:
            places.setdefault(edge.data.data, []).append(place_of(sdfg, edge.data, params))
    return [
        array
        for array, found in places.items()
        if found[0] is not None and found[0].steps[-1] == 1 and all(str(p) == str(found[0]) for p in found)
    ]


def _load(sdfg: dace.SDFG, state: dace.SDFGState, block: Block, array: str) -> None:
    """What a block reads of an array comes into registers first."""
    (outer,) = [e for e in state.in_edges(block.entry) if e.data.data == array]
    readers = [e for e in state.out_edges(block.entry) if e.data.data == array]
    name, all_of_it = _registers(sdfg, block, array)
    held, load = add_access(state, name), _move("load_vector", sdfg, block, array)
    for edge in (outer, *readers):
        state.remove_edge(edge)
    block.entry.remove_in_connector(outer.dst_conn)
    block.entry.remove_out_connector(readers[0].src_conn)
    block.entry.add_in_connector("IN_" + name)
    block.entry.add_out_connector("OUT_" + name)
    state.add_edge(outer.src, outer.src_conn, load, "_in", _neighbours(readers[0].data, block))
    state.add_edge(load, "_out", held, None, all_of_it)
    state.add_edge(held, None, block.entry, "IN_" + name, copy.deepcopy(all_of_it))
    for edge in readers:
        state.add_edge(block.entry, "OUT_" + name, edge.dst, edge.dst_conn, _one(name, block))


def _store(sdfg: dace.SDFG, state: dace.SDFGState, block: Block, array: str) -> None:
    """What a block writes of an array goes into registers first."""
    (edge,) = [e for e in state.in_edges(block.exit) if e.data.data == array]
    (after,) = [e for e in state.out_edges(block.exit) if e.data.data == array]
    name, all_of_it = _registers(sdfg, block, array)
    held, store = add_access(state, name), _move("store_vector", sdfg, block, array)
    state.remove_edge(edge)
    state.remove_edge(after)
    block.exit.remove_in_connector(edge.dst_conn)
    block.exit.remove_out_connector(after.src_conn)
    block.exit.add_in_connector("IN_" + name)
    block.exit.add_out_connector("OUT_" + name)
    state.add_edge(edge.src, edge.src_conn, block.exit, "IN_" + name, _one(name, block))
    state.add_edge(block.exit, "OUT_" + name, held, None, all_of_it)
    state.add_edge(held, None, store, "_in", copy.deepcopy(all_of_it))
    state.add_edge(store, "_out", after.dst, after.dst_conn, _neighbours(edge.data, block))


def _registers(sdfg: dace.SDFG, block: Block, array: str) -> tuple[str, Memlet]:
    name, _ = sdfg.add_transient(
        f"{array}_vector",
        [block.width],
        sdfg.arrays[array].dtype,
        storage=dtypes.StorageType.Register,
        find_new_name=True,
    )
    return name, Memlet(data=name, subset=Range([(0, block.width - 1, 1)]))


def _neighbours(one: Memlet, block: Block) -> Memlet:
    """What a block accesses of an array, from what an iteration does."""
    subset: Any = one.subset
    first, last = {block.param: sympy.Integer(0)}, {block.param: sympy.sympify(block.extent) - 1}
    ends = [
        (sympy.sympify(low).xreplace(first), sympy.sympify(low).xreplace(last), 1) for low, _, _ in subset
    ]
    return Memlet(data=one.data, subset=Range(ends))


def _one(name: str, block: Block) -> Memlet:
    return Memlet(data=name, subset=Range([(block.param, block.param, 1)]))


def _move(function: str, sdfg: dace.SDFG, block: Block, array: str) -> nodes.Tasklet:
    pointer = dtypes.pointer(sdfg.arrays[array].dtype)
    return nodes.Tasklet(
        function,
        {"_in": pointer},
        {"_out": pointer},
        f"{function}<{block.width}>(_in, _out, {symbolic.symstr(block.extent)});",
        language=dtypes.Language.CPP,
    )
