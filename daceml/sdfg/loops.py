"""The innermost loops of a kernel, and how its accesses go through memory as they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import dace
from dace.sdfg import nodes

from daceml.sdfg.scopes import top_maps
from daceml.sdfg.sizes import Size, product, size


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The innermost loop around a tasklet.

    Attributes:
        entry: of its map.
        parameter: of the map; empty where no loop has more than one iteration.
        extent: iterations.
        step: from one to the next.
    """

    entry: nodes.MapEntry
    parameter: str = ""
    extent: Size = 1
    step: Size = 1


def loop_around(tasklet: nodes.Tasklet, scopes: Mapping[Any, Any]) -> Loop:
    """The innermost loop of more than one iteration.

    Args:
        scopes: node -> the map in which it stands directly; None outside all.
    """
    entry = around = scopes[tasklet]
    while around is not None:
        found = innermost(around)
        if found.parameter:
            return replace(found, entry=entry)
        around = scopes[around]
    return Loop(entry=entry)


def innermost(entry: nodes.MapEntry) -> Loop:
    """The last of a map's loops that has more than one iteration."""
    rows = zip(entry.map.params, entry.map.range.size(), entry.map.range, strict=True)
    for name, extent, (_, _, step) in reversed(list(rows)):
        if extent != 1:
            return Loop(entry=entry, parameter=str(name), extent=size(extent), step=size(step))
    return Loop(entry=entry)


def stride_along(loop: Loop, memlet: dace.Memlet, desc: dace.data.Data) -> Size | None:
    """Elements from what an iteration accesses to what the next one does; None where data decides that."""
    if memlet.dynamic:
        return None
    subset: Any = memlet.subset
    strides: Any = desc.strides
    if size(subset.num_elements()) != 1:  # a block at once
        along = [size(stride) for extent, stride in zip(subset.size(), strides, strict=True) if extent != 1]
        return 1 if 1 in along else None
    found: Size = 0
    for (low, _, _), stride in zip(subset.ndrange(), strides, strict=True):
        for own in getattr(low, "free_symbols", ()):
            if loop.parameter and str(own) == loop.parameter:
                found = found + size(low.subs(own, own + loop.step) - low) * size(stride)
    return found


def shares_last(entry: nodes.MapEntry) -> bool:
    """Whether threads share out the last loop of a map outside all others."""
    return _parallel(entry) and max(entry.map.collapse, 1) >= len(entry.map.params)


def shared_iterations(sdfg: dace.SDFG) -> Size:
    """How many pieces threads may share of a kernel; 1 where one thread does all of it."""
    found: Size = 1
    for state in sdfg.states():
        for entry in top_maps(state):
            if _parallel(entry):
                extents = [size(n) for n in entry.map.range.size()]
                pieces = product(extents[: max(entry.map.collapse, 1)])
                larger = not isinstance(pieces, int) or not isinstance(found, int) or pieces > found
                found = pieces if larger else found
    return found


def _parallel(entry: nodes.MapEntry) -> bool:
    """Whether threads share a map outside all others; DaCe lets them where nothing is said."""
    return entry.map.schedule in (dace.ScheduleType.CPU_Multicore, dace.ScheduleType.Default)
