"""SharedLaunches: on a device, small loops that do not need each other, and go through memory alike, are one.

for p: A'[p] = f(A[p])
for p: B'[p] = g(B[p])   ->   for p: A'[p] = f(A[p]); B'[p] = g(B[p])

Nothing is saved but a launch: what one costs, some microseconds, is what moving a few megabytes takes.
Transposes of queries, keys and values, and lookups in a model's many tables, are such loops. Those that are
larger stay apart, since what one of them gives would have to wait for the other's arguments.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import dace
import sympy
from dace import symbolic

from daceml.sdfg.scalar_rewrite import rename
from daceml.transformations.local.fusion_graph import Unit, UnitGraph, stands_between
from daceml.transformations.local.fusion_groups import Axis, Group, hands_over
from daceml.transformations.local.fusion_judge import Judge

# What one loop may move: about 8 us at 4 TB/s, as an NVIDIA H200 has it
_MOST_BYTES = 2**25
# Loops over equal boxes that one is compared with: those before it, nearest first
_NEAR = 4

Key = tuple[tuple[str, ...], frozenset[str], frozenset[str]]


def share_launches(graph: UnitGraph, judge: Judge, apart: Collection[Unit]) -> int:
    """Join such loops in a graph of units; returns how many launches that saves.

    Args:
        apart: units that stay as they are.
    """
    before: dict[Key, list[Unit]] = {}
    saved = 0
    for unit in sorted(graph.units, key=lambda u: u.place):
        if unit in apart or not _is_small(unit.group, judge):
            continue
        assert unit.group is not None
        known = before.setdefault(_way_through_memory(judge.sdfg, unit.group), [])
        for host in reversed(known[-_NEAR:]):
            group = _side_by_side(host, unit)
            if group is not None and judge.refusal(group) is None:
                graph.merge(host, unit, group)
                saved += 1
                break
        else:
            known.append(unit)
    return saved


def _is_small(group: Group | None, judge: Judge) -> bool:
    """Whether a group is a loop that adds nothing up and moves little."""
    if group is None or not group.axes or any(m.operator is not None for m in group.members):
        return False
    return sum(judge.bytes_of(a) for a in group.arrays if a in judge.sdfg.arrays) <= _MOST_BYTES


def _way_through_memory(sdfg: dace.SDFG, group: Group) -> Key:
    """The box of a group, what is inside its points, and where these read and write, whichever the arrays.

    What is alike can be flattened alike, and has the same neighbours to be loaded together.
    """
    ways: set[str] = set()
    inside: set[str] = set()
    for member in group.members:
        names = {axis.params[member]: symbolic.symbol(f"a{n}") for n, axis in enumerate(group.axes)}
        inside.add(str(group.inner_extents(member)))
        ways.add(_way(sdfg, member.target, member.index, names))
        ways |= {_way(sdfg, array, at, names) for array, found in member.reads.items() for at in found}
    return tuple(str(axis.extent) for axis in group.axes), frozenset(inside), frozenset(ways - {""})


def _way(sdfg: dace.SDFG, array: str, index: Any, names: dict[str, Any]) -> str:
    """How an access goes through memory with the place in the box, wherever it begins; "" for what a point
    keeps for itself."""
    if array not in sdfg.arrays:
        return ""
    desc = sdfg.arrays[array]
    if index is None:
        return f"{desc.dtype} at a position that is data"
    offset = sum(rename(i, names) * stride for i, stride in zip(index, desc.strides, strict=True))
    _, moving = sympy.expand(offset).as_independent(*names.values(), as_Add=True)
    return f"{desc.dtype} at {moving}"


def _side_by_side(first: Unit, second: Unit) -> Group | None:
    """Both, with their boxes as one; None where something has to happen between them."""
    one, other = first.group, second.group
    assert one is not None
    assert other is not None
    if hands_over(one, other) or hands_over(other, one) or one.written.keys() & other.written.keys():
        return None
    if stands_between(first, second) or stands_between(second, first):
        return None
    pairs = zip(one.axes, other.axes, strict=True)
    axes = tuple(Axis(extent=a.extent, params={**a.params, **b.params}) for a, b in pairs)
    return Group(members=(*one.members, *other.members), axes=axes)
