"""Simulation of lanes that are not ordered: whenever one is free, a policy chooses among what is ready."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from daceml.errors import WhatIfError
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import TaskGraph


@dataclass(kw_only=True, eq=False)
class SchedulingState:
    """What is known at the moment of a choice.

    Attributes:
        now_us: the moment.
        lane: number of the lane that is free.
        ready_us: [n] since when each task has been ready, NaN of those that still wait.
        end_us: [n] when each task ends, NaN of those that no lane has begun.
    """

    graph: TaskGraph
    now_us: float
    lane: int
    ready_us: Sequence[float]
    end_us: Sequence[float]


# Of the tasks that are ready, by (since when, place in the graph), the one to run; it is not interrupted.
SchedulingPolicy = Callable[[Sequence[int], SchedulingState], int]


@dataclass(frozen=True)
class Ranked:
    """The policy that runs the task of the lowest rank; of several, whichever has been ready longest.

    Ranks are known from the start, so that what is ready can be kept sorted and need not be searched.
    """

    rank: Callable[[TaskGraph], NDArray[np.float64]]

    def __call__(self, ready: Sequence[int], state: SchedulingState) -> int:
        """The first one of the lowest rank."""
        return min(ready, key=self.rank(state.graph).__getitem__)


first_ready = Ranked(lambda graph: np.zeros(len(graph)))
by_priority = Ranked(lambda graph: -graph.tasks.priority)


def run_events(graph: TaskGraph, policy: SchedulingPolicy) -> Schedule:
    """Simulate a graph without cycles, of whose lanes some are not ordered.

    Lanes choose in the order of the moments at which they can, of one moment in the order of the graph. What
    becomes ready by an edge with a lag below zero is not known to choices before that edge's source began.
    """
    simulation = _Simulation(graph, policy)
    simulation.run()
    return Schedule(
        graph=graph,
        start_us=np.array(simulation.start_us, np.float64),
        end_us=np.array(simulation.end_us, np.float64),
        before=np.array(simulation.before, np.int64),
        order=np.array(simulation.order, np.int64),
        policy=policy,
    )


class _Simulation:
    """The state of one run; lists, whose elements Python reads faster than those of arrays."""

    def __init__(self, graph: TaskGraph, policy: SchedulingPolicy) -> None:
        structure, tasks, edges = graph.structure, graph.tasks, graph.edges
        count = len(graph)
        self.policy = policy
        self.ranked = isinstance(policy, Ranked)
        self.rank = policy.rank(graph).tolist() if isinstance(policy, Ranked) else [0.0] * count
        self.before = structure.before.tolist()
        self.after = structure.after.tolist()
        self.in_start, self.in_edge = structure.in_start.tolist(), structure.in_edge.tolist()
        self.in_source = structure.in_source.tolist()
        self.out_start, self.out_target = structure.out_start.tolist(), structure.out_target.tolist()
        self.duration_us, self.gap_us = tasks.duration_us.tolist(), tasks.gap_us.tolist()
        self.lag_us, self.from_start = edges.lag_us.tolist(), edges.from_start.tolist()
        self.lane = tasks.lane.tolist()
        self.waits = (np.diff(structure.in_start) + (structure.before >= 0)).tolist()
        self.start_us, self.end_us = [math.nan] * count, [math.nan] * count
        self.ready_us = [math.nan] * count
        self.order: list[int] = []
        # Of each lane: whether it is ordered, the task that it began last, until when that runs, what will be
        # ready, what is.
        self.ordered = [lane.ordered for lane in graph.lanes]
        self.last = [-1] * len(graph.lanes)
        self.free_us = [0.0] * len(graph.lanes)
        self.coming: list[list[tuple[float, int]]] = [[] for _ in graph.lanes]
        self.ready: list[list[int]] = [[] for _ in graph.lanes]
        self.choices: list[tuple[float, int]] = []  # (moment, lane); outdated ones are passed over
        self.state = SchedulingState(
            graph=graph, now_us=0.0, lane=0, ready_us=self.ready_us, end_us=self.end_us
        )

    def run(self) -> None:
        for task in [task for task, waits in enumerate(self.waits) if waits == 0]:
            self._is_ready(task)
        told = self._tell_from(0)
        while self.choices:
            moment_us, lane = heappop(self.choices)
            if moment_us == self._moment_us(lane):
                self._choose(lane, moment_us)
                told = self._tell_from(told)

    def _tell_from(self, place: int) -> int:
        """Tell the followers of all that began, from a place of the order on; returns the next place."""
        while place < len(self.order):
            self._tell_followers(self.order[place])
            place += 1
        return place

    def _tell_followers(self, task: int) -> None:
        followers = self.out_target[self.out_start[task] : self.out_start[task + 1]]
        for follower in [self.after[task], *followers]:
            if follower >= 0:
                self.waits[follower] -= 1
                if self.waits[follower] == 0:
                    self._is_ready(follower)

    def _is_ready(self, task: int) -> None:
        """All that a task waits for has begun: it begins by itself, or its lane will choose."""
        lane = self.lane[task]
        self.ready_us[task] = moment_us = self._earliest_us(task)
        if self.ordered[lane]:
            self._begin(task, moment_us)
        else:
            heappush(self.coming[lane], (moment_us, task))
            self._ask(lane)

    def _earliest_us(self, task: int) -> float:
        start_us = 0.0
        earliest_us = self.gap_us[task]
        if self.before[task] >= 0:
            earliest_us += self.end_us[self.before[task]]
        if earliest_us > start_us:
            start_us = earliest_us
        for place in range(self.in_start[task], self.in_start[task + 1]):
            edge, source = self.in_edge[place], self.in_source[place]
            since_us = self.start_us[source] if self.from_start[edge] else self.end_us[source]
            earliest_us = since_us + self.lag_us[edge]
            if earliest_us > start_us:
                start_us = earliest_us
        return start_us

    def _begin(self, task: int, moment_us: float) -> None:
        self.start_us[task] = moment_us
        self.end_us[task] = moment_us + self.duration_us[task]
        self.order.append(task)

    def _moment_us(self, lane: int) -> float:
        """When a lane can choose next, as far as known."""
        if self.ready[lane]:
            return self.free_us[lane]
        return max(self.free_us[lane], self.coming[lane][0][0]) if self.coming[lane] else math.inf

    def _turn(self, task: int) -> tuple[float, float, int]:
        return self.rank[task], self.ready_us[task], task

    def _ask(self, lane: int) -> None:
        if self.ready[lane] or self.coming[lane]:
            heappush(self.choices, (self._moment_us(lane), lane))

    def _choose(self, lane: int, moment_us: float) -> None:
        ready, coming, state = self.ready[lane], self.coming[lane], self.state
        while coming and coming[0][0] <= moment_us:
            insort(ready, heappop(coming)[1], key=self._turn)
        state.now_us, state.lane = moment_us, lane
        task = ready[0] if self.ranked else self.policy(ready, state)
        if task not in ready:
            graph = state.graph
            named = repr(graph.name_of(task)) if task in range(len(graph)) else repr(task)
            raise WhatIfError(
                f"the scheduling policy chose {named}, which is not ready on {graph.lanes[lane].name}",
                where=graph.source,
                why=f"ready at {moment_us} us: {', '.join(repr(graph.name_of(one)) for one in ready[:5])}",
                fix="return an element of the tasks that it is given",
            )
        ready.remove(task)
        self.before[task] = self.last[lane]
        self.last[lane] = task
        self._begin(task, moment_us)
        self.free_us[lane] = self.end_us[task]
        self._ask(lane)
