"""Collectives take part of a device from the kernels that run meanwhile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daceml.errors import WhatIfError
from daceml.simulation.engine.events import SchedulingPolicy
from daceml.simulation.engine.replay import simulate
from daceml.simulation.graph import Mask, TaskGraph

_ROUNDS = 30
_SETTLED_US = 1e-3


def slowed(
    graph: TaskGraph,
    *,
    collectives: Mask,
    computing: Mask,
    share: float,
    policy: SchedulingPolicy | None = None,
) -> TaskGraph:
    """The graph in which whatever computes runs at `1 - share` of its speed while a collective runs.

    Where they overlap depends on how long each lasts, so the graph is simulated until that settles: a task
    that takes w by itself and overlaps for o lasts w + share * o. Each round corrects what is left by the
    factor `share` or more.

    Args:
        share: of a device that a collective takes, such as its share of the multiprocessors.
    Raises:
        WhatIfError: the share is below 0, or 1 or more.
    """
    if not 0 <= share < 1:
        raise WhatIfError(f"a collective takes {share} of a device", fix="give a share from 0 to below 1")
    alone_us = graph.tasks.duration_us
    if share == 0 or not (alone_us[collectives] > 0).any():
        return graph
    for _ in range(_ROUNDS):
        schedule = simulate(graph, policy)
        start_us, end_us = schedule.start_us, schedule.end_us
        busy = np.flatnonzero(collectives)
        overlap_us = _covered(start_us[busy], end_us[busy], start_us, end_us)
        lasting_us = np.where(computing, alone_us + share * overlap_us, alone_us)
        change_us = np.abs(lasting_us - graph.tasks.duration_us).max()
        graph = graph.with_times(duration_us=lasting_us)
        if change_us < _SETTLED_US:
            break
    return graph


def _covered(
    busy_start: NDArray[np.float64],
    busy_end: NDArray[np.float64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
) -> NDArray[np.float64]:
    """For each span, how long at least one of the busy ones lasts in it."""
    order = np.argsort(busy_start, kind="stable")
    begins, ends = busy_start[order], np.maximum.accumulate(busy_end[order])
    begins = np.maximum(
        begins, np.concatenate([[-np.inf], ends[:-1]])
    )  # what an earlier one covers counts once
    begins, ends = begins[ends > begins], ends[ends > begins]
    if not len(begins):
        return np.zeros(len(start))
    times = np.stack([begins, ends], axis=1).ravel()
    so_far = np.concatenate([[0.0], np.cumsum(np.diff(times) * (np.arange(len(times) - 1) % 2 == 0))])
    return np.interp(end, times, so_far) - np.interp(start, times, so_far)
