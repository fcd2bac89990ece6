"""What optimisations would bring: the step time of the changed graph, with an interval, beside the run's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from daceml.errors import DacemlError, ImplausibleAnswerError, WhatIfError
from daceml.notebook import html_of
from daceml.simulation.analysis.guards import Answer, check_answer, remaining_work_us
from daceml.simulation.analysis.profiler_cost import without_profiler
from daceml.simulation.analysis.steps import StepScale, step_error
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.difference import Difference, difference
from daceml.simulation.whatif.optimization import Optimization, Side, applied


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A what-if question and its answer.

    Attributes:
        titles: of the optimisations, in the order in which they were applied.
        baseline: the replay of the run as it was recorded; its own error is `replay_error`, a share.
        schedule: that of the run with the optimisations and without the profiler, their figures as is likely.
        baseline_us: what a step of the run takes as it was, without the profiler where that is known.
        step_us: what a step takes then, in the long run.
        fast_us, slow_us: the same with all uncertain figures at best and at worst, widened by the error of
            the replay.
        samples: how many times as many samples a step takes, on all devices.
        change: what was done to the graph.
        assumptions: what the answer takes for granted.
    """

    titles: tuple[str, ...]
    baseline: Schedule
    schedule: Schedule
    baseline_us: float
    step_us: float
    fast_us: float
    slow_us: float
    replay_error: float
    samples: float
    change: Difference
    assumptions: tuple[str, ...]

    @property
    def speedup(self) -> float:
        """How many times as many samples are done in the same time."""
        return self.samples * self.baseline_us / self.step_us if self.step_us > 0 else float("inf")

    def _repr_html_(self) -> str:
        return html_of("what-if", self)


def predict(
    graph: TaskGraph, optimizations: Sequence[Optimization], *, baseline: Schedule | None = None
) -> Prediction:
    """Apply optimisations one after the other, and simulate.

    Args:
        graph: of a recorded run.
        baseline: its replay, if it is known already.
    Raises:
        WhatIfError: one of them cannot be applied.
        ImplausibleAnswerError: the answer breaks a law of every run.
    """
    return _answer(_Run.of(graph, baseline), optimizations)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A question that this run cannot answer.

    Attributes:
        reason: why, in a sentence.
        code: of the error.
    """

    title: str
    reason: str
    code: str

    @classmethod
    def of(cls, title: str, error: DacemlError) -> Self:
        """From the error that the question met."""
        law = f"{error.what}: " if isinstance(error, ImplausibleAnswerError) else ""
        return cls(title=title, reason=law + (error.why or error.what), code=error.code)


def predict_each(
    graph: TaskGraph, optimizations: Sequence[Optimization], *, baseline: Schedule | None = None
) -> tuple[list[Prediction], list[Refusal]]:
    """Answers for each optimisation alone, then for all together that can be applied, if they are several.

    Raises:
        WhatIfError, ImplausibleAnswerError: none of them can be answered; the message says why of the first.
    """
    run = _Run.of(graph, baseline)
    found: list[Prediction] = []
    usable: list[Optimization] = []
    refused: list[Refusal] = []
    first: DacemlError | None = None
    for optimization in optimizations:
        try:
            found.append(_answer(run, [optimization]))
            usable.append(optimization)
        except (WhatIfError, ImplausibleAnswerError) as error:
            first = first or error
            refused.append(Refusal.of(optimization.title, error))
    if first is not None and not found:
        raise first
    if len(usable) > 1:
        try:
            found.append(_answer(run, usable))
        except (WhatIfError, ImplausibleAnswerError) as error:
            refused.append(Refusal.of("all together", error))
    return found, refused


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What all questions about one run share.

    Attributes:
        replay: of the run as it was recorded.
        scale: of its steps.
        graph: of the run without the profiler.
        step_us: what a step of that takes.
    """

    replay: Schedule
    scale: StepScale
    graph: TaskGraph
    step_us: float

    @classmethod
    def of(cls, graph: TaskGraph, replay: Schedule | None) -> _Run:
        replay = simulate(graph) if replay is None else replay
        plain = without_profiler(graph)
        seen = replay if plain is graph else simulate(plain)
        scale = StepScale.of(replay)
        return cls(replay=replay, scale=scale, graph=plain, step_us=scale.step_us(seen))


def _answer(run: _Run, optimizations: Sequence[Optimization]) -> Prediction:
    _check_alternatives(optimizations)
    error = step_error(run.replay)
    schedules = {side: _schedule(run.graph, optimizations, side) for side in ("likely", "fast", "slow")}
    step_us = {side: run.scale.step_us(schedule) for side, schedule in schedules.items()}
    assumptions: list[str] = []
    moved_us = 0.0
    changed = run.graph
    for optimization in optimizations:
        assumptions += optimization.assumptions(changed)
        moved_us = max(moved_us, optimization.moved_us(changed))
        changed = applied(optimization, changed)
    found = Prediction(
        titles=tuple(optimization.title for optimization in optimizations),
        baseline=run.replay,
        schedule=schedules["likely"],
        baseline_us=run.step_us,
        step_us=step_us["likely"],
        fast_us=min(step_us.values()) * max(1.0 - error, 0.0),
        slow_us=max(step_us.values()) * (1.0 + error),
        replay_error=error,
        samples=math.prod(optimization.samples for optimization in optimizations),
        change=difference(run.graph, changed),
        assumptions=tuple(dict.fromkeys(assumptions)),
    )
    check_answer(
        Answer(
            title=" + ".join(found.titles),
            step_us=found.step_us,
            low_us=found.fast_us,
            high_us=found.slow_us,
            baseline_us=run.step_us,
            may_cost=any(optimization.may_cost for optimization in optimizations),
            least_us=run.scale.per_step_us(max(moved_us, remaining_work_us(changed))),
            devices=math.prod(optimization.devices for optimization in optimizations),
            one_device_us=_one_device_us(run, optimizations),
        ),
        where=run.graph.source,
    )
    return found


def _one_device_us(run: _Run, optimizations: Sequence[Optimization]) -> float | None:
    """The step with the questions about one device alone; None where none is about several."""
    local = [one for one in optimizations if one.devices == 1]
    if len(local) == len(optimizations):
        return None
    return run.scale.step_us(_schedule(run.graph, local, "likely")) if local else run.step_us


def _check_alternatives(optimizations: Sequence[Optimization]) -> None:
    titles: dict[str, str] = {}
    for optimization in optimizations:
        family = optimization.family or optimization.option
        if family in titles:
            raise WhatIfError(
                "two of these optimisations are alternatives to each other",
                why=f"{titles[family]} and {optimization.title} change the same thing",
                fix="ask about them one at a time",
            )
        titles[family] = optimization.title


def _schedule(graph: TaskGraph, optimizations: Sequence[Optimization], side: Side) -> Schedule:
    policies = [policy for one in optimizations if (policy := one.policy) is not None]
    if len(set(policies)) > 1:
        raise WhatIfError(
            "two of these optimisations schedule in different ways", fix="ask about them one at a time"
        )
    for optimization in optimizations:
        graph = applied(optimization.at(side), graph)
    return simulate(graph, policies[0] if policies else None)
