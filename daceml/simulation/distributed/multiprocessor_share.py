"""Kernels of communication occupy multiprocessors, of which kernels that run meanwhile have the fewer."""

from __future__ import annotations

import numpy as np

from daceml.simulation.distributed.matching import MatchedRun
from daceml.simulation.distributed.rank_lanes import key_of, task_ranks
from daceml.simulation.engine import simulate
from daceml.simulation.engine.events import SchedulingPolicy
from daceml.simulation.graph import Floats, TaskGraph
from daceml.simulation.task import TaskKind

_ROUNDS = 30
_SETTLED_US = 1e-3
_MOST = 0.9  # of a device: whatever computes goes on


def multiprocessor_shares(graph: TaskGraph, run: MatchedRun) -> Floats:
    """[n] of each In the share of its device that the kernel takes until Out; 0 of all other tasks.

    NCCL runs a block for each channel, and such a block leaves no room on its multiprocessor.

    Args:
        graph: of `global_graph`, perhaps changed since.
    """
    shares = np.zeros(len(graph))
    for column, rank in enumerate(run.ranks):
        if rank.multiprocessors == 0:
            continue
        calls = [one for one in rank.communications if one.task >= 0]
        keys = np.array([key_of(column, int(rank.graph.tasks.key[one.task])) for one in calls], np.int64)
        at = graph.index_of(keys)
        taken = np.array([min(one.channels / rank.multiprocessors, _MOST) for one in calls], np.float64)
        shares[at[at >= 0]] = taken[at >= 0]
    return shares


def with_shares(
    graph: TaskGraph, original: TaskGraph, shares: Floats, *, policy: SchedulingPolicy | None = None
) -> TaskGraph:
    """The graph with durations of kernels as they are when others communicate at other times than recorded.

    A kernel that takes w by itself and overlaps with communication for o lasts w + share * o. What it takes
    by itself follows from the replay of the original graph. The changed one is simulated until it settles, on
    the durations of the round before. An unchanged graph stays as it is.

    Args:
        graph: a changed `original`, with the same tasks: other durations, gaps or lags.
        shares: [n] of `multiprocessor_shares`.
    """
    before = simulate(original, policy)
    slowed_us = _slowed_us(original, shares, before.start_us, before.end_us)
    recorded_us = original.tasks.duration_us
    # by which factor a kernel lasts longer than by itself: a change of its duration is one of its work
    work_us = graph.tasks.duration_us * np.where(
        recorded_us > 0, np.maximum(recorded_us - slowed_us, 0.0) / np.maximum(recorded_us, 1e-12), 1.0
    )
    for _ in range(_ROUNDS):
        schedule = simulate(graph, policy)
        lasting_us = work_us + _slowed_us(graph, shares, schedule.start_us, schedule.end_us)
        change_us = np.abs(lasting_us - graph.tasks.duration_us).max(initial=0.0)
        graph = graph.with_times(duration_us=lasting_us)
        if change_us < _SETTLED_US:
            break
    return graph


def _slowed_us(graph: TaskGraph, shares: Floats, start_us: Floats, end_us: Floats) -> Floats:
    """[n] for each kernel, its device's occupied share, summed over the time that it runs."""
    slowed = np.zeros(len(graph))
    device = np.array([-1 if lane.device is None else lane.device for lane in graph.lanes])[graph.tasks.lane]
    ranks = task_ranks(graph)
    computes = graph.tasks.kind == TaskKind.KERNEL
    ins = np.flatnonzero(shares > 0)
    outs = graph.structure.after[ins]  # Out stands right behind In on its stream
    for rank in np.unique(ranks[ins]):
        for number in np.unique(device[ins[ranks[ins] == rank]]):
            here = (ranks[ins] == rank) & (device[ins] == number)
            mine = np.flatnonzero(computes & (ranks == rank) & (device == number))
            begin, end = start_us[ins[here]], start_us[outs[here]]
            slowed[mine] = _occupied_us(begin, end, shares[ins[here]], start_us[mine], end_us[mine])
    return slowed


def _occupied_us(begin: Floats, end: Floats, share: Floats, since: Floats, until: Floats) -> Floats:
    """The share that is occupied, integrated over each of some spans.

    Args:
        begin, end, share: of what occupies the device.
        since, until: of the spans.
    """
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    level = np.minimum(np.cumsum(np.concatenate([share, -share])[order])[:-1], _MOST)
    sums = np.concatenate([[0.0], np.cumsum(level * np.diff(times[order]))])
    return np.interp(until, times[order], sums) - np.interp(since, times[order], sums)
