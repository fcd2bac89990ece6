"""What the host did besides dispatch before tasks that an optimization takes out."""

from __future__ import annotations

import numpy as np

from daceml.simulation.graph import Floats, TaskGraph
from daceml.simulation.task import TaskKind


def other_work_us(graph: TaskGraph, changed: TaskGraph, dispatch_us: float) -> Floats:
    """[tasks of `changed`] of calls that are gone right before each, what was no dispatch.

    Args:
        graph: the run.
        changed: the run without some of its tasks.
        dispatch_us: of a call and of the time before it, what the framework's dispatch takes at most.
    """
    stays = np.isin(graph.tasks.key, changed.tasks.key)
    gaps_us = np.where(graph.structure.before >= 0, graph.tasks.gap_us, 0.0)
    calls_us = np.where(graph.tasks.kind == TaskKind.CALL, graph.tasks.duration_us, 0.0)
    other_us = np.maximum(gaps_us - dispatch_us, 0.0) + np.maximum(calls_us - dispatch_us, 0.0)
    other_us[stays | graph.on_device()] = 0.0
    moved_us = np.zeros(len(graph))
    for lane in range(len(graph.lanes)):
        members = graph.lane_members(lane)
        kept = stays[members]
        moved_us[members[kept]] = np.diff(np.cumsum(other_us[members])[kept], prepend=0.0)
    return moved_us[stays]
