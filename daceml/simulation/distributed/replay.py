"""What a replay of all ranks says of each: how long, how long it waits for others, what it communicates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.analysis.steps import recorded_step_times, step_times
from daceml.simulation.distributed.rank_lanes import NO_RANK, task_ranks
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.engine.events import SchedulingPolicy
from daceml.simulation.graph import Floats, TaskGraph
from daceml.simulation.task import EdgeKind, TaskKind


@dataclass(frozen=True, kw_only=True)
class RankReplay:
    """Of one rank, in microseconds. What was recorded is told by a graph in which nothing lasts otherwise.

    Attributes:
        recorded_us, predicted_us: from its first task to the end of its last one.
        recorded_step_us, predicted_step_us: the mean of its steps, as its loop sees them.
        waiting_us: from its arrival at collectives to that of the last member, in all.
        queueing_us: from there until the link that others share is free, in all.
        communication_us: of its collectives from there on, in all.
        critical_us: of the critical path, how much is spent on this rank.
    """

    rank: int
    recorded_us: float
    predicted_us: float
    recorded_step_us: float
    predicted_step_us: float
    waiting_us: float
    queueing_us: float
    communication_us: float
    critical_us: float

    @property
    def error(self) -> float:
        """By how much the replay is off, as a share: of the whole or of the step, whichever is larger."""
        pairs = (
            (self.predicted_us, self.recorded_us),
            (self.predicted_step_us, self.recorded_step_us),
        )
        errors = [predicted / recorded - 1.0 for predicted, recorded in pairs if recorded > 0]
        return max(errors, key=abs, default=0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunReplay:
    """Of all ranks together.

    Attributes:
        recorded_us: from the first moment of the run to its last one, by aligned clocks.
        network_critical_us: of the critical path, how much is spent in the network.
    """

    schedule: Schedule
    ranks: tuple[RankReplay, ...]
    recorded_us: float
    network_critical_us: float

    @property
    def predicted_us(self) -> float:
        """The makespan."""
        return self.schedule.makespan_us

    @property
    def error(self) -> float:
        """By how much the makespan differs from the recorded one, as a share."""
        return self.predicted_us / self.recorded_us - 1.0 if self.recorded_us > 0 else 0.0


def replayed(graph: TaskGraph, policy: SchedulingPolicy | None = None) -> RunReplay:
    """Replay a graph of several ranks.

    Args:
        graph: of `global_graph` or `coarse_graph`, perhaps changed since.
        policy: for links that groups share; None is whatever is ready first.
    """
    schedule = simulate(graph, policy)
    of_rank = task_ranks(graph)
    spent_us = _critical(schedule, of_rank)
    shares = _shares(schedule, of_rank)
    last_us = graph.tasks.recorded_us + graph.tasks.duration_us
    ranks = [
        _rank(
            schedule, int(rank), of_rank == rank,
            **{name: of.get(int(rank), 0.0) for name, of in shares.items()},
            critical_us=spent_us.get(int(rank), 0.0),
        )
        for rank in np.unique(of_rank[of_rank != NO_RANK])
    ]  # fmt: skip
    return RunReplay(
        schedule=schedule,
        ranks=tuple(ranks),
        recorded_us=float(np.nanmax(last_us[of_rank != NO_RANK], initial=0.0)),
        network_critical_us=spent_us.get(NO_RANK, 0.0),
    )


def _rank(schedule: Schedule, rank: int, mine: NDArray[np.bool_], **totals_us: float) -> RankReplay:
    tasks = schedule.graph.tasks
    recorded_us = np.where(mine, tasks.recorded_us, np.nan)
    known = dataclasses.replace(schedule.graph, tasks=dataclasses.replace(tasks, recorded_us=recorded_us))
    own = dataclasses.replace(schedule, start_us=np.where(mine, schedule.start_us, np.nan))
    steps, recorded_steps = step_times(own).loop_us, recorded_step_times(known).loop_us
    return RankReplay(
        rank=rank,
        recorded_us=float(np.nanmax(recorded_us + tasks.duration_us) - np.nanmin(recorded_us)),
        predicted_us=float(schedule.end_us[mine].max() - schedule.start_us[mine].min()),
        recorded_step_us=float(recorded_steps.mean()) if len(recorded_steps) else 0.0,
        predicted_step_us=float(steps.mean()) if len(steps) else 0.0,
        **totals_us,
    )


def _critical(schedule: Schedule, of_rank: NDArray[np.int64]) -> dict[int, float]:
    """Rank, or NO_RANK for the network -> how much of the critical path it is."""
    spent_us: dict[int, float] = {}
    for segment in critical_path(schedule).segments:
        rank = int(of_rank[segment.task])
        spent_us[rank] = spent_us.get(rank, 0.0) + segment.duration_us
    return spent_us


def _shares(schedule: Schedule, of_rank: NDArray[np.int64]) -> dict[str, dict[int, float]]:
    """For each rank, how long it waits for other members, for links, and takes part in what is sent."""
    graph = schedule.graph
    channel = graph.edges.kind == EdgeKind.CHANNEL
    network = graph.tasks.kind == TaskKind.COLLECTIVE
    source, target = graph.edges.source, graph.edges.target
    arriving = channel & network[target] & (of_rank[target] == NO_RANK) & (of_rank[source] != NO_RANK)
    leaving = channel & network[source] & (of_rank[source] == NO_RANK) & (of_rank[target] != NO_RANK)
    arrived_us = schedule.end_us[source[arriving]] + graph.edges.lag_us[arriving]
    last_us = np.full(len(graph), -np.inf)
    np.maximum.at(last_us, target[arriving], arrived_us)
    ready_us = last_us[target[arriving]]
    ranks = of_rank[source[arriving]]
    lasts_us = schedule.end_us[source[leaving]] - schedule.start_us[source[leaving]]
    return {
        "waiting_us": _summed(ranks, ready_us - schedule.end_us[source[arriving]]),
        "queueing_us": _summed(ranks, schedule.start_us[target[arriving]] - ready_us),
        "communication_us": _summed(of_rank[target[leaving]], lasts_us),
    }


def _summed(ranks: NDArray[np.int64], values: Floats) -> dict[int, float]:
    return {int(rank): float(values[ranks == rank].sum()) for rank in np.unique(ranks)}
