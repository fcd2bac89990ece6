"""The search for a plan: Algorithm 1 from the plain step on, then moves that an evaluation must confirm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from daceml.errors import StrategyError
from daceml.simulation.distributed.strategy.coarsened import coarsened
from daceml.simulation.distributed.strategy.evaluation import Accelerations, Evaluation, Evaluator
from daceml.simulation.distributed.strategy.plan import (
    FusedTime,
    Plan,
    bytes_of_bucket,
    data_parallel_default,
    nothing_fuses,
    separate,
)  # fmt: skip
from daceml.simulation.distributed.strategy.synchronization import PARTS, Synchronization
from daceml.simulation.distributed.strategy.training_step import TrainingStep
from daceml.simulation.distributed.strategy.walk import (
    KINDS,
    OPERATOR_FUSION,
    TENSOR_FUSION,
    TENSOR_PARTITION,
    Walk,
)  # fmt: skip

# dPRO ends a search when five rounds have changed little
_ROUNDS_WITHOUT_GAIN = 5
_LITTLE = 1e-3
_TRIES_WITHOUT_GAIN = 200
MIB = 2.0**20
# Limits of equal buckets, which DistributedDataParallel takes as `bucket_cap_mb`
LIMITS_BYTES = (*(MIB * size for size in (1, 2, 5, 10, 25, 50, 100, 200)), float("inf"))


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is searched.

    Attributes:
        fused_us: how long fused computations take.
        kinds: of `walk.KINDS`, what may be done.
        interference: share of a device that sending takes from what it computes meanwhile.
    """

    step: TrainingStep
    synchronization: Synchronization
    fused_us: FusedTime = nothing_fuses
    kinds: frozenset[str] = frozenset(KINDS)
    interference: float = 0.0

    def __post_init__(self) -> None:
        unknown = sorted(self.kinds - set(KINDS))
        if unknown:
            raise StrategyError(
                f"there is no kind of move {unknown[0]!r}", fix=f"name one of {', '.join(KINDS)}"
            )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a search is.

    Attributes:
        round: of what, such as "algorithm 1".
        step_us: of the best plan so far.
    """

    round: str
    step_us: float
    seconds: float
    simulated: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found.

    Attributes:
        step: that the plan's numbers count in: coarsened, if that was allowed.
        plan, evaluation: the best.
        default_us: of the step as DistributedDataParallel does it.
        limit_bytes, limit_us: the best limit of buckets that it takes as a setting, and its step.
        rounds: of Algorithm 1.
        simulated: how many steps were simulated; asked: how often the time of a sum was wanted.
        converged: False where time was over first.
    """

    step: TrainingStep
    plan: Plan
    evaluation: Evaluation
    default_us: float
    limit_bytes: float
    limit_us: float
    rounds: int
    simulated: int
    asked: int
    seconds: float
    converged: bool

    @property
    def step_us(self) -> float:
        return self.evaluation.step_us


def search(
    problem: Problem,
    *,
    budget_s: float = 60.0,
    accelerations: Accelerations | None = None,
    refine: bool = True,
    seed: int = 0,
    observe: Callable[[Progress], None] | None = None,
) -> Found:
    """The best plan that was found in the time; never a worse one than DistributedDataParallel's default.

    Args:
        budget_s: after which the best so far is returned.
        refine: whether moves are tried when Algorithm 1 has converged.
        seed: of the order in which they are.
        observe: is told whenever something better was found, and after each round.
    """
    return _Search(problem, budget_s, accelerations or Accelerations(), seed, observe).run(refine=refine)


@dataclass
class _Search:
    problem: Problem
    budget_s: float
    accelerations: Accelerations
    seed: int
    observe: Callable[[Progress], None] | None
    began: float = field(default_factory=time.perf_counter)

    def run(self, *, refine: bool) -> Found:
        fine = self.problem.step
        step = coarsened(fine, self.problem.fused_us) if self._coarsens else fine
        self.evaluator = Evaluator(
            step=step, synchronization=self.problem.synchronization, fused_us=self.problem.fused_us,
            interference=self.problem.interference, accelerations=self.accelerations,
        )  # fmt: skip
        self.default_us = self._default_us(fine)
        limits = [(self._us(self._start(limit_bytes)), limit_bytes) for limit_bytes in LIMITS_BYTES]
        least_us, fastest_bytes = min(limits)
        # of limits that are as good, the one with the fewest buckets
        limit_bytes, limit_us = max((size, us) for us, size in limits if us <= least_us * (1 + _LITTLE))
        self.best = min((self._start(fastest_bytes), data_parallel_default(step)), key=self._us)
        rounds, converged = self._algorithm()
        if refine and self.problem.kinds:
            converged = self._refine() and converged
        return Found(
            step=step, plan=self.best, evaluation=self.evaluator(self.best), default_us=self.default_us,
            limit_bytes=limit_bytes, limit_us=limit_us, rounds=rounds, simulated=self.evaluator.simulated,
            asked=self.evaluator.asked, seconds=self._seconds, converged=converged,
        )  # fmt: skip

    @property
    def _coarsens(self) -> bool:
        return self.accelerations.coarsened

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def _over(self) -> bool:
        return self._seconds > self.budget_s

    def _us(self, plan: Plan) -> float:
        return self.evaluator(plan).step_us

    def _default_us(self, fine: TrainingStep) -> float:
        """Of the step as it is: nothing is fused in it but tensors, by torch's rule."""
        evaluator = replace(
            self.evaluator, step=fine, fused_us=nothing_fuses, simulated=0, _known={}, _parts={}
        )
        return evaluator(data_parallel_default(fine)).step_us

    def _start(self, limit_bytes: float) -> Plan:
        if TENSOR_FUSION not in self.problem.kinds:
            return data_parallel_default(self.evaluator.step)
        # torch's small first bucket is of its default alone: a limit that is given holds for the first, too
        return data_parallel_default(self.evaluator.step, first_bytes=limit_bytes, limit_bytes=limit_bytes)

    def _algorithm(self) -> tuple[int, bool]:
        """Algorithm 1 of dPRO, from tensors that are sent alone; the best plan it came by is kept."""
        walk = Walk(evaluator=self.evaluator, kinds=self.problem.kinds, over=lambda: self._over)
        step = self.evaluator.step
        plan = separate(step) if TENSOR_FUSION in self.problem.kinds else data_parallel_default(step)
        least, rounds, without_gain = self._us(plan), 0, 0
        while without_gain < _ROUNDS_WITHOUT_GAIN:
            if self._over:
                return rounds, False
            after = walk.along(plan, self.evaluator(plan))
            rounds += 1
            self._consider(after, "algorithm 1")
            gained = self._us(after) < (1 - _LITTLE) * least
            least, without_gain = min(least, self._us(after)), 0 if gained else without_gain + 1
            if after == plan:
                break
            plan = after
        return rounds, True

    def _refine(self) -> bool:
        """Single moves from the best plan; whether none of them was left that helps."""
        random = Random(self.seed)
        tries = 0
        while tries < _TRIES_WITHOUT_GAIN:
            if self._over:
                return False
            moves = list(self._moves(self.best, random))
            if not moves:
                return True
            better = self._consider(random.choice(moves)(), "refinement")
            tries = 0 if better else tries + 1
        return True

    def _moves(self, plan: Plan, random: Random) -> Iterator[Callable[[], Plan]]:
        """One of each kind that is there, at a place by chance."""
        kinds, evaluator = self.problem.kinds, self.evaluator
        count = len(evaluator.step.computations)
        if TENSOR_FUSION in kinds:
            inner = plan.buckets[:-1]
            if inner:
                cut = random.choice(inner)
                yield lambda: self._in_best_parts(plan.with_bucket_joined(cut, 1))
                yield lambda: self._moved(plan, cut, random)
            producers = [n + 1 for n, one in enumerate(evaluator.step.computations) if one.gradient_bytes]
            free = [n for n in producers if n not in plan.buckets and n < count]
            if free:
                yield lambda: self._in_best_parts(plan.with_bucket_cut(random.choice(free), (1, 1)))
        if TENSOR_PARTITION in kinds:
            bucket = random.randrange(len(plan.buckets))
            yield lambda: plan.with_parts(bucket, random.choice(PARTS))
        if OPERATOR_FUSION in kinds:
            if len(plan.groups) > 1:
                yield lambda: plan.with_group_joined(random.choice(plan.groups[:-1]))
            whole = [n for n in range(1, count) if n not in plan.groups]
            if whole:
                yield lambda: plan.with_group_cut(random.choice(whole))

    def _moved(self, plan: Plan, cut: int, random: Random) -> Plan:
        """A cut of buckets some computations further or nearer."""
        joined = plan.with_bucket_joined(cut, 1)
        place = plan.buckets.index(cut)
        low, high = (0, *plan.buckets)[place], plan.buckets[place + 1]
        new = min(max(cut + random.choice((-3, -2, -1, 1, 2, 3)), low + 1), high - 1)
        return self._in_best_parts(joined.with_bucket_cut(new, (1, 1)))

    def _in_best_parts(self, plan: Plan) -> Plan:
        if TENSOR_PARTITION in self.problem.kinds:
            for bucket in range(len(plan.buckets)):
                size = bytes_of_bucket(self.evaluator.step, plan, bucket)
                plan = plan.with_parts(bucket, self.evaluator.synchronization.best_parts(size))
        return plan

    def _consider(self, plan: Plan, round_: str) -> bool:
        if not self._can_be(plan) or self._us(plan) >= self._us(self.best):
            return False
        self.best = plan
        if self.observe is not None:
            simulated = self.evaluator.simulated
            self.observe(
                Progress(round=round_, step_us=self._us(plan), seconds=self._seconds, simulated=simulated)
            )
        return True

    def _can_be(self, plan: Plan) -> bool:
        """Whether every group of several computations is one that can be fused."""
        computations = self.evaluator.step.computations
        several = [computations[first:end] for first, end in plan.ranges_of_groups if end > first + 1]
        return all(
            len({one.part for one in members}) == 1 and self.evaluator.fused_us(members) is not None
            for members in several
        )
