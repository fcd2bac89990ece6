"""Dimensions of a map that follow each other in memory, in every array that it touches, become one.

for n, c, h, w: Y[n, c, h, w] = X[n, c, h, w] * s[c]   ->   for n, c, i: Y[p + i] = X[p + i] * s[c]

Rows of 7 elements fill no vector; images of 49, and whole tensors, do. All arrays of the kernel become
one-dimensional: its SDFG is its own (`sdfg/outline.py`), and only pointers come into it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dace
import sympy
from dace import symbolic
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.scopes import scope_nodes

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an access is, in elements from the beginning of the array: the sum of steps times parameters.

    Attributes:
        start: with all parameters at 0.
        steps: one for each parameter of the map.
    """

    start: Any
    steps: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """How a map without others inside goes through memory.

    Attributes:
        groups: neighbouring dimensions that every access goes through as through one, outermost first.
        edges: inside the map, of arrays outside it.
        places: of their accesses, in the same order.
    """

    groups: list[list[int]]
    edges: list[Any]
    places: list[Place]


def dimensions_of(sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> Dimensions | None:
    """The dimensions of a map; None where it has others inside, or positions are data."""
    first, *inside, last = scope_nodes(state, entry)
    if not is_flat(sdfg, inside) or not _from_zero(entry.map):
        return None
    outside = {e.data.data for e in (*state.in_edges(first), *state.out_edges(last)) if not e.data.is_empty()}
    edges = [e for n in (first, *inside) for e in state.out_edges(n) if e.data.data in outside]
    places = [place_of(sdfg, edge.data, entry.map.params) for edge in edges]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return None
    return Dimensions(groups=_groups(entry.map, known, _named(inside)), edges=edges, places=known)


def flatten_dimensions(sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> None:
    """Merge dimensions of a map without others inside. Mutates the SDFG, which is a kernel's own.

    Where positions are data, the map stays as it is.
    """
    found = dimensions_of(sdfg, state, entry)
    if found is None:
        return
    groups = found.groups
    first, *_, last = scope_nodes(state, entry)
    outside = {name for name, desc in sdfg.arrays.items() if not desc.transient}
    for name in outside:
        desc = sdfg.arrays[name]
        sdfg.remove_data(name, validate=False)
        sdfg.add_array(name, [desc.total_size], desc.dtype, storage=desc.storage)
    params: list[Any] = [symbolic.symbol(entry.map.params[group[-1]]) for group in groups]
    extents: list[Any] = entry.map.range.size()
    entry.map.range = Range([(0, math.prod(extents[d] for d in group) - 1, 1) for group in groups])
    entry.map.params = [str(param) for param in params]
    for edge, place in zip(found.edges, found.places, strict=True):
        index = place.start + sum(place.steps[g[-1]] * p for g, p in zip(groups, params, strict=True))
        edge.data.subset = Range([(index, index, 1)])
    for edge in (*state.in_edges(first), *state.out_edges(last)):
        if not edge.data.is_empty():
            edge.data = Memlet.from_array(edge.data.data, sdfg.arrays[edge.data.data])


def is_flat(sdfg: dace.SDFG, inside: Sequence[nodes.Node]) -> bool:
    """Whether there are but tasklets in a map, and single values between them."""
    values = (n for n in inside if isinstance(n, nodes.AccessNode))
    return all(isinstance(n, nodes.Tasklet | nodes.AccessNode) for n in inside) and all(
        sdfg.arrays[n.data].transient and sdfg.arrays[n.data].total_size == 1 for n in values
    )


def place_of(sdfg: dace.SDFG, memlet: Memlet, params: Sequence[str]) -> Place | None:
    """The place of one element; None for more than one, and where parameters do not count linearly."""
    subset: Any = memlet.subset
    offset: Any = sympy.Integer(0)
    for (low, high, _), stride in zip(subset.ranges, sdfg.arrays[memlet.data].strides, strict=True):
        if str(low) != str(high):
            return None
        offset += sympy.sympify(low) * stride
    offset = sympy.expand(offset)
    names: Mapping[str, Any] = {str(s): s for s in offset.free_symbols}
    steps = tuple(offset.coeff(names[p]) if p in names else sympy.Integer(0) for p in params)
    start = sympy.expand(offset - sum(s * names[p] for s, p in zip(steps, params, strict=True) if p in names))
    mentioned = {str(s) for part in (start, *steps) for s in part.free_symbols}
    return None if mentioned & set(params) else Place(start=start, steps=steps)


def _from_zero(loops: nodes.Map) -> bool:
    return all(low == 0 and step == 1 for low, _, step in loops.range.ranges)


def _named(inside: Sequence[nodes.Node]) -> set[str]:
    """Words in the code of tasklets: parameters among them are values."""
    return {word for n in inside if isinstance(n, nodes.Tasklet) for word in words(n.code.as_string)}


def words(code: str) -> set[str]:
    """Names in the code of a tasklet."""
    return set(_WORD.findall(code))


def _groups(loops: nodes.Map, places: Sequence[Place], named: set[str]) -> list[list[int]]:
    """Neighbouring dimensions that every access goes through as through one, outermost first."""
    extents: list[Any] = loops.range.size()
    groups = [[len(extents) - 1]]
    for d in range(len(extents) - 2, -1, -1):
        behind = d + 1
        follows = all(
            sympy.simplify(place.steps[d] - place.steps[behind] * extents[behind]) == 0 for place in places
        )
        if follows and not {loops.params[d], loops.params[behind]} & named:
            groups[0].insert(0, d)
        else:
            groups.insert(0, [d])
    return groups
