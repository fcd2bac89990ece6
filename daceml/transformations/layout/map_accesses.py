"""What every top-level map reads and writes, element by element. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dace
from dace.sdfg import nodes

# The names in the index of each dimension.
Names = tuple[frozenset[str], ...]


@dataclass(frozen=True, kw_only=True)
class MapAccesses:
    """The accesses of one map.

    Attributes:
        reads, writes: (array, names in each dimension's index), an entry for each access of one element.
        whole: arrays of which a tasklet gets more than one element.
    """

    reads: tuple[tuple[str, Names], ...]
    writes: tuple[tuple[str, Names], ...]
    whole: frozenset[str]

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """(read, written) arrays of four dimensions that follow each other through batch and channel."""
        for source, at in self.reads:
            for target, to in self.writes:
                if len(at) == len(to) == 4 and at[:2] == to[:2] and at[1]:
                    yield source, target


def map_accesses(state: dace.SDFGState) -> dict[nodes.MapEntry, MapAccesses]:
    """Top-level map -> its accesses."""
    scopes = state.scope_dict()

    def outermost(node: nodes.Node) -> Any:
        entry: Any = node
        while scopes[entry] is not None:
            entry = scopes[entry]
        return entry

    found: dict[nodes.MapEntry, tuple[list[tuple[str, Names]], list[tuple[str, Names]], set[str]]] = {
        n: ([], [], set()) for n in state.nodes() if isinstance(n, nodes.MapEntry) and scopes[n] is None
    }
    for edge in state.edges():
        tasklet = edge.dst if isinstance(edge.dst, nodes.Tasklet) else edge.src
        if not isinstance(tasklet, nodes.Tasklet) or edge.data.is_empty():
            continue
        entry = outermost(tasklet)
        if entry not in found:
            continue
        reads, writes, whole = found[entry]
        array = str(edge.data.data)
        subset: Any = edge.data.subset
        ranges = subset.ranges
        if any(str(low) != str(high) for low, high, _ in ranges):
            whole.add(array)
        names = tuple(frozenset(map(str, getattr(low, "free_symbols", ()))) for low, _, _ in ranges)
        (reads if edge.dst is tasklet else writes).append((array, names))
    return {
        entry: MapAccesses(reads=tuple(dict.fromkeys(r)), writes=tuple(dict.fromkeys(w)), whole=frozenset(o))
        for entry, (r, w, o) in found.items()
    }
