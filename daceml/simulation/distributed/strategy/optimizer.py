"""The best strategy: choices for the whole step that fit into memory, and a plan for each of the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from daceml.errors import StrategyError
from daceml.simulation.analysis.guards import Answer, check_answer
from daceml.simulation.distributed.strategy.choices import (
    Choice,
    GradientAccumulation,
    Recomputation,
    Registry,
    Sharding,
    applied,
    combinations,
    fits,
)  # fmt: skip
from daceml.simulation.distributed.strategy.evaluation import Evaluator
from daceml.simulation.distributed.strategy.plan import data_parallel_default, nothing_fuses
from daceml.simulation.distributed.strategy.search import Found, Problem, Progress, search
from daceml.simulation.distributed.strategy.training_step import TrainingStep
from daceml.simulation.distributed.strategy.walk import OPERATOR_FUSION

# So many combinations of choices are searched for a plan, the best by torch's buckets first
_SEARCHED = 3
_GIB = 2.0**30

# What is tried for every step: kinds of choices, of which each step has at most one.
CHOICES: Registry = {
    "gradient accumulation": lambda step: [GradientAccumulation(batches) for batches in (2, 4, 8)],
    "recomputation": lambda step: [Recomputation()],
    "sharding": lambda step: [Sharding(level) for level in (1, 2, 3)] if step.devices > 1 else [],
}


def register_choice(kind: str, offered: Callable[[TrainingStep], Sequence[Choice]]) -> None:
    """Let `optimize` try more: what is offered for a step.

    Args:
        kind: of its choices each step has at most one. A kind that is there is replaced.
    """
    CHOICES[kind] = offered


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A combination of choices.

    Attributes:
        step_us: with the buckets of torch's default; inf where it does not fit.
        peak_bytes: NaN where nobody knows.
    """

    choices: tuple[Choice, ...]
    step_us: float
    peak_bytes: float
    fits: bool

    @property
    def name(self) -> str:
        """Of its choices."""
        return ", ".join(choice.name for choice in self.choices) or "as it is"


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What was found.

    Attributes:
        candidates: all combinations, those that fit first, by their time.
        found: the plan of the chosen one.
        contributions: kind of the walk's moves -> the step without it, in microseconds.
    """

    problem: Problem
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    found: Found
    contributions: Mapping[str, float]

    @property
    def step_us(self) -> float:
        """Of the chosen candidate with its plan."""
        return self.found.step_us


def optimize(
    problem: Problem,
    *,
    memory_bytes: float | None = None,
    budget_s: float = 60.0,
    kinds: Sequence[str] | None = None,
    seed: int = 0,
    observe: Callable[[Progress], None] | None = None,
) -> Strategy:
    """The fastest strategy that fits, and what each kind of its moves is worth.

    Args:
        memory_bytes: of one device; None is enough for anything.
        budget_s: for all of it; three fifths go to the search, the rest to what its parts are worth.
        kinds: of `CHOICES` that may be tried; None is all.
    Raises:
        StrategyError: nothing fits; the message says what needs least.
        ImplausibleAnswerError: what was found breaks a law of every step.
    """
    began = perf_counter()
    candidates = sorted(
        _candidates(problem, memory_bytes, kinds), key=lambda one: (not one.fits, one.step_us, one.peak_bytes)
    )
    possible = [one for one in candidates if one.fits]
    if not possible:
        least = min(candidates, key=lambda one: one.peak_bytes)
        raise StrategyError(
            f"no strategy fits into {(memory_bytes or 0) / _GIB:.3g} GiB",
            why=f"the least memory is that of {least.name}: {least.peak_bytes / _GIB:.3g} GiB",
            fix="give more memory, a smaller batch, or more devices to spread over",
        )
    tried = possible[:_SEARCHED]
    best: tuple[Found, Candidate, Problem] | None = None
    for number, candidate in enumerate(tried):
        left = max(0.0, 0.6 * budget_s - (perf_counter() - began)) / (len(tried) - number)
        step, synchronization = applied(candidate.choices, problem.step, problem.synchronization)
        made = replace(problem, step=step, synchronization=synchronization)
        found = search(made, budget_s=left, seed=seed, observe=observe)
        if best is None or found.step_us < best[0].step_us:
            best = found, candidate, made
    assert best is not None, "there is a possible candidate"
    found, chosen, made = best
    left = max(0.0, budget_s - (perf_counter() - began)) / max(1, len(problem.kinds))
    fused = OPERATOR_FUSION in problem.kinds
    check_answer(
        Answer(
            title=chosen.name, step_us=found.step_us, low_us=found.step_us, high_us=found.step_us,
            baseline_us=found.default_us, may_cost=False,
            least_us=0.0 if fused else made.step.computing_us, devices=made.step.devices,
        )
    )  # fmt: skip
    return Strategy(
        problem=made, chosen=chosen, candidates=tuple(candidates), found=found,
        contributions={kind: _without(made, kind, left, seed) for kind in sorted(problem.kinds)},
    )  # fmt: skip


def _candidates(problem: Problem, memory_bytes: float | None, kinds: Sequence[str] | None) -> list[Candidate]:
    unknown = sorted(set(kinds or ()) - CHOICES.keys())
    if unknown:
        raise StrategyError(f"there is no choice {unknown[0]!r}", fix=f"name one of {', '.join(CHOICES)}")
    offered = [offer(problem.step) for kind, offer in CHOICES.items() if kinds is None or kind in kinds]
    found: list[Candidate] = []
    for choices in combinations(offered):
        step, synchronization = applied(choices, problem.step, problem.synchronization)
        peak = float("nan") if step.memory is None else step.memory.peak_bytes
        room = fits(step.memory, memory_bytes)
        evaluator = Evaluator(
            step=step,
            synchronization=synchronization,
            fused_us=nothing_fuses,
            interference=problem.interference,
        )
        step_us = evaluator(data_parallel_default(step)).step_us if room else float("inf")
        found.append(Candidate(choices=choices, step_us=step_us, peak_bytes=peak, fits=room))
    return found


def _without(problem: Problem, kind: str, budget_s: float, seed: int) -> float:
    """The step that is found when one kind of moves is not allowed."""
    return search(replace(problem, kinds=problem.kinds - {kind}), budget_s=budget_s, seed=seed).step_us
