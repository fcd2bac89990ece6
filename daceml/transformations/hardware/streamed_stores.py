"""stream_stores: what is too large for the caches is written past them.

for i in 0..n: Y[i] = f(X[i])   ->   for b in 0, 128, …: fetch X ahead; for v in 0..128: s[v] = f(X[b + v])
                                                       Y[b : b + 128] = s, past the caches

A store brings the line that it writes into the cache first: for an elementwise loop a third of what moves.
Stores past the caches do not, but they gain only where loads are on their way meanwhile, hence short blocks
and a hint for what comes next. Measured on Sapphire Rapids (2 threads, 16 M float32, not in any cache):
x * sigmoid(x) 6.2 ms plainly, 6.0 past the caches in rows of 1024, 5.1 in blocks of 128, 4.5 with hints.
The array is not in a cache for its next reader then: a loop that writes 16 MB and one that reads them take
1.1 times as long, of 32 MB 0.8 times.
"""

from __future__ import annotations

import copy
from typing import Any

import dace
from dace import dtypes, symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes

from daceml.config import config
from daceml.sdfg.access import add_access
from daceml.sdfg.blocks import Block, block_last_loop, widened
from daceml.sdfg.costs import STREAM
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, refused_arrays
from daceml.sdfg.scopes import exit_of, scope_nodes, top_maps
from daceml.sdfg.sizes import size
from daceml.transformations.hardware.read_ahead import WIDTH, along_memory, fetch, has_bytes, reads_ahead

# Elements; a longer loop is cut into blocks of `WIDTH`
_WHOLE = 256
_SHORTEST = 64


def stream_stores(network: Network) -> tuple[str, ...]:
    """Write large arrays past the caches; returns them. Mutates the SDFG."""
    limit = config().streaming_bytes
    streamed: list[str] = []
    refused: dict[str, str] = {}
    state = network.state
    if limit:
        for entry in top_maps(state):
            found = _Scope(network, entry, limit)
            streamed += found.run()
            refused |= found.refused
    network.passes.append(
        PassRecord(
            level="hardware",
            name="stream_stores",
            applied={"streamed arrays": len(streamed)} if streamed else {},
            refused=refused_arrays(network.sdfg, refused),
        )
    )
    return tuple(streamed)


class _Scope:
    """The large arrays that one top-level map writes."""

    def __init__(self, network: Network, entry: nodes.MapEntry, limit: int) -> None:
        self.sdfg, self.state = network.sdfg, network.state
        self.entry, self.exit = entry, exit_of(self.state, entry)
        self.refused: dict[str, str] = {}
        self.limit = limit

    def run(self) -> list[str]:
        large = [a for a in self._written() if has_bytes(self.sdfg, a, self.limit)]
        if not large:
            return []
        self.inside = scope_nodes(self.state, self.entry)
        self.parents = self.state.scope_dict()
        loops: dict[nodes.MapEntry, list[str]] = {}
        for array in large:
            found = self._loop(array)
            if isinstance(found, str):
                self.refused[array] = found
            else:
                loops.setdefault(found, []).append(array)
        ahead = {loop: reads_ahead(self.sdfg, self.state, self.inside, loop) for loop in loops}
        for loop, arrays in loops.items():
            count = int(loop.map.range.size()[-1])
            block = block_last_loop(self.sdfg, self.state, loop, count if count <= _WHOLE else WIDTH)
            for array in arrays:
                self._write_block(block, array)
            for read in ahead[loop]:
                fetch(self.sdfg, self.state, self.entry, block, read)
        return [array for arrays in loops.values() for array in arrays]

    def _written(self) -> list[str]:
        return list(dict.fromkeys(e.data.data for e in self.state.out_edges(self.exit) if e.data.data))

    def _loop(self, array: str) -> nodes.MapEntry | str:
        """The map that writes an array along memory, or why it is not written past the caches."""
        if any(e.data.data == array for e in self.state.in_edges(self.entry)):
            return "the kernel that writes it also reads it"
        if any(isinstance(n, nodes.AccessNode) and n.data == array for n in self.inside):
            return "a later iteration of its kernel reads it"
        edges = [
            e
            for node in self.inside
            if isinstance(node, nodes.Tasklet)
            for e in self.state.out_edges(node)
            if e.data.data == array
        ]
        if len(edges) != 1:
            return f"{len(edges)} steps of the loop write it"
        (edge,) = edges
        if edge.data.wcr is not None:
            return "its kernel accumulates into it"
        entry: Any = self.parents[edge.src]
        count = size(entry.map.range.size()[-1])
        if entry.map.range.ranges[-1][0] != 0 or entry.map.range.ranges[-1][2] != 1:
            return "the innermost loop of its kernel skips elements"
        if not isinstance(count, int) or count < _SHORTEST:
            return f"its innermost loop has {count} iterations, fewer than {_SHORTEST}"
        if entry is not self.entry and not entry.map.params[-1].startswith("v"):
            return "the innermost loop of its kernel reads what it has written"
        if not along_memory(self.sdfg, edge.data, entry.map.params[-1]):
            return "elements that are adjacent in memory are not adjacent in the loop"
        return entry

    def _write_block(self, block: Block, array: str) -> None:
        """What a block writes goes to an array of its own first."""
        state = self.state
        (edge,) = [e for e in state.in_edges(block.exit) if e.data.data == array]
        (after,) = [e for e in state.out_edges(block.exit) if e.data.data == array]
        desc = self.sdfg.arrays[array]
        name, _ = self.sdfg.add_transient(
            f"{array}_block",
            [block.width],
            desc.dtype,
            storage=dtypes.StorageType.Register,
            find_new_name=True,
        )
        state.remove_edge(edge)
        state.remove_edge(after)
        block.exit.remove_in_connector(edge.dst_conn)
        block.exit.remove_out_connector(after.src_conn)
        block.exit.add_in_connector("IN_" + name)
        block.exit.add_out_connector("OUT_" + name)
        held = add_access(state, name)
        memlet = Memlet(data=name, subset=dace.subsets.Range([(block.param, block.param, 1)]))
        part = widened(self.sdfg, memlet, {block.param: block.extent})
        pointer = dtypes.pointer(desc.dtype)
        stream = nodes.Tasklet(
            STREAM,
            {"_in": pointer},
            {"_out": pointer},
            f"stream(_out, _in, {symbolic.symstr(block.extent)});",
            language=dtypes.Language.CPP,
        )
        state.add_edge(edge.src, edge.src_conn, block.exit, "IN_" + name, memlet)
        state.add_edge(block.exit, "OUT_" + name, held, None, part)
        state.add_edge(held, None, stream, "_in", copy.deepcopy(part))
        state.add_edge(stream, "_out", after.dst, after.dst_conn, after.data)
