"""Recurrences: steps that each continue from the one before, in the canonical form.

One top-level map runs over lanes that know nothing of each other. Inside it a sequential map writes the state
at the start, and another one goes through the steps; in a step, sequential maps follow each other with an
access node of the state between them. The state keeps all steps, so every element is still written once.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy
from dace import dtypes
from dace.memlet import Memlet
from dace.sdfg import nodes

from daceml.sdfg.access import add_access
from daceml.sdfg.builder import Builder, box, new_map
from daceml.sdfg.scalar import Index
from daceml.sdfg.scatter import Lanes, Level, Loop, Written


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """`target = start`, then for each step the loops, in order.

    Attributes:
        label: name of the map, for people.
        target: the state; written only here, and read by the loops.
        params, extents: the lanes; no loop reads or writes the state of another lane.
        start: what the first step continues from.
        step: parameter of the steps.
        steps: their number.
        loops: no index of one is data; a value holds at most one reduction.
    """

    label: str
    target: str
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    start: Loop
    step: sympy.Basic
    steps: Index
    loops: tuple[Loop, ...]

    @property
    def empty(self) -> bool:
        """Whether there is no lane, or nothing in it."""
        return self.start.empty or any(isinstance(e, int) and e <= 0 for e in (*self.extents, self.steps))


def emit_recurrence(builder: Builder, recurrence: Recurrence) -> nodes.MapEntry | None:
    """Adds the scope of a recurrence; None where it has no element or no step."""
    if recurrence.empty:
        return None
    state, target = builder.state, recurrence.target
    lanes = Lanes(builder, recurrence.label, target, recurrence.params, recurrence.extents)
    between = add_access(state, target)
    lanes.close(lanes.loop("start", recurrence.start, recurrence.start.value, [], None), between)

    first, last = new_map(
        recurrence.label + "_steps", [recurrence.step], [recurrence.steps], dtypes.ScheduleType.Sequential
    )
    level: Level = (first, {recurrence.step: recurrence.steps})
    whole = [(0, extent - 1) for extent in builder.sdfg.arrays[target].shape]
    first.add_in_connector("IN_" + target)
    first.add_out_connector("OUT_" + target)
    state.add_edge(between, None, first, "IN_" + target, Memlet(data=target, subset=box(whole)))
    held: nodes.AccessNode | nodes.MapEntry = first
    written: Written | None = None
    for number, loop in enumerate(recurrence.loops):
        if written is not None:
            held = add_access(state, target)
            lanes.close(written, held)
        written = lanes.loop(f"step_{number}", loop, loop.value, [level], held)
    assert written is not None, "a recurrence has a loop"
    if not list(state.out_edges_by_connector(first, "OUT_" + target)):
        # Only later loops read the state, where the loop before left it: the start is merely done before.
        (edge,) = state.in_edges_by_connector(first, "IN_" + target)
        state.remove_edge(edge)
        first.remove_in_connector("IN_" + target)
        first.remove_out_connector("OUT_" + target)
        state.add_edge(between, None, first, None, Memlet())
    lanes.leave(written, last)
    lanes.finish(Written(end=last, subset=whole))
    return lanes.entry
