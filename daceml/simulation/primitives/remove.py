"""Take tasks out, with the calls that launched them."""

from __future__ import annotations

from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.primitives.edit import without
from daceml.simulation.primitives.select import launches_of, returns_of


def remove(graph: TaskGraph, mask: Mask, *, with_launch: bool = True, keep_gaps: bool = False) -> TaskGraph:
    """The graph without the selected tasks.

    Args:
        with_launch: calls that launched nothing else, or waited for nothing but a removed copy, go as well,
            with the time in which the framework prepared them.
        keep_gaps: that time stays.
    """
    gone = mask | launches_of(graph, mask) | returns_of(graph, mask) if with_launch else mask
    return without(graph, gone, keep_gaps=keep_gaps)
