"""How long a step takes under a plan, by simulation; what was simulated once is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.distributed.strategy.plan import FusedTime, Plan
from daceml.simulation.distributed.strategy.step_graph import StepGraph, step_graph
from daceml.simulation.distributed.strategy.synchronization import PARTS, Synchronization
from daceml.simulation.distributed.strategy.training_step import TrainingStep
from daceml.simulation.engine.replay import simulate
from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.interference import slowed

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """A simulated step.

    Attributes:
        step_us: until the last device has updated its parameters.
    """

    built: StepGraph
    schedule: Schedule

    @property
    def step_us(self) -> float:
        return self.schedule.makespan_us

    @cached_property
    def computed_us(self) -> Floats:
        """[groups] when the slowest device has each."""
        return self.schedule.end_us[self.built.groups].max(axis=0)

    @cached_property
    def sent_us(self) -> Floats:
        """[buckets] when each is summed."""
        return self.schedule.end_us[self.built.last_sent]

    @cached_property
    def computing_limits(self) -> bool:
        """Whether nothing waits for the network at the end."""
        return bool(self.sent_us[-1] <= self.computed_us[-1])

    @cached_property
    def first_critical_bucket(self) -> int:
        """The first bucket on the critical path; the number of buckets where computing is the limit.

        From it on, each bucket is sent as soon as the one before it is through.
        """
        begun = self.schedule.start_us[self.built.first_sent]
        if self.computing_limits:
            return len(begun)
        follows = np.isclose(begun[1:], self._first_stage_free()[:-1], rtol=0, atol=1e-9)
        breaks = np.flatnonzero(~follows)
        return int(breaks[-1]) + 1 if len(breaks) else 0

    def _first_stage_free(self) -> Floats:
        """[buckets] when the last part of each has passed the first stage."""
        tasks = self.schedule.graph.tasks
        lane = tasks.lane[self.built.first_sent[0]]
        members = np.flatnonzero(tasks.lane == lane)
        ends = np.append(self.built.first_sent[1:], members[-1] + 1) - 1
        return self.schedule.end_us[ends]


@dataclass(frozen=True, kw_only=True)
class Accelerations:
    """What makes a search fast without making another one of it.

    Attributes:
        coarsened: it goes over computations that end a tensor, with all that leads to one of them.
        partial: the time of a sum is that of its own tasks; else of replays of the whole step.
        symmetric: devices that do the same are simulated once, and what was found for a piece of work is
            taken for like pieces in other blocks of the model.
    Source: Hu et al., dPRO (MLSys '22), section 5.3.
    """

    coarsened: bool = True
    partial: bool = True
    symmetric: bool = True


@dataclass(kw_only=True)
class Evaluator:
    """Simulates plans of one step.

    Attributes:
        interference: share of a device that sending takes from what it computes meanwhile.
        simulated: how many steps were; asked: how often the time of a sum was wanted.
    """

    step: TrainingStep
    synchronization: Synchronization
    fused_us: FusedTime
    interference: float = 0.0
    accelerations: Accelerations = field(default_factory=Accelerations)
    simulated: int = 0
    asked: int = 0
    _known: dict[Plan, Evaluation] = field(default_factory=dict[Plan, Evaluation], repr=False)
    _parts: dict[float, tuple[int, float]] = field(default_factory=dict[float, tuple[int, float]], repr=False)

    def __call__(self, plan: Plan) -> Evaluation:
        """The step under a plan; one that was simulated before is known."""
        if plan not in self._known:
            self._known[plan] = self._simulated(plan)
        return self._known[plan]

    def parts_of(self, plan: Plan, bucket: int, size_bytes: float) -> tuple[int, float]:
        """The best number of parts of a tensor of this size in the place of a bucket, and its sum's time."""
        self.asked += 1
        if self.accelerations.partial:
            return self.synchronization.best_parts(size_bytes), self.synchronization.best_us(size_bytes)
        if not (self.accelerations.symmetric and size_bytes in self._parts):
            self._parts[size_bytes] = min(
                ((parts, self._sum_us(plan.with_parts(bucket, parts), bucket)) for parts in PARTS),
                key=lambda found: (found[1], found[0]),
            )
        return self._parts[size_bytes]

    def _sum_us(self, plan: Plan, bucket: int) -> float:
        found = self(plan)
        return float(found.sent_us[bucket] - found.schedule.start_us[found.built.first_sent[bucket]])

    def _simulated(self, plan: Plan) -> Evaluation:
        self.simulated += 1
        alike = self.accelerations.symmetric
        built = step_graph(self.step, plan, self.synchronization, self.fused_us, alike=alike)
        graph = built.graph
        if self.interference:
            sending = graph.tasks.kind == TaskKind.COLLECTIVE
            graph = slowed(graph, collectives=sending, computing=~sending, share=self.interference)
        return Evaluation(built=built, schedule=simulate(graph))
