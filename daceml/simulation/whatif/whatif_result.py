"""What optimisations would bring: the step time of the changed graph, with an interval, beside the run's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from daceml.errors import DacemlError, ImplausibleAnswerError, WhatIfError
from daceml.notebook import html_of
from daceml.simulation.analysis.guards import Answer, check_answer, remaining_work_us
from daceml.simulation.analysis.profiler_cost import without_profiler
from daceml.simulation.analysis.reliability import HostLimit, host_limits, without_host
from daceml.simulation.analysis.steps import StepScale, step_error
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.engine.events import SchedulingPolicy
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.difference import Difference, difference
from daceml.simulation.whatif.optimization import Optimization, Side, applied
from daceml.simulation.whatif.work import has_device

_SIDES: tuple[Side, ...] = ("likely", "fast", "slow")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A what-if question and its answer.

    Attributes:
        titles: of the optimisations, in the order in which they were asked for, with number formats.
        baseline: the replay of the run as it was recorded; its own error is `replay_error`, a share.
        schedule: that of the run with the optimisations and without the profiler, their figures as is likely.
        baseline_us: what a step of the run takes as it was, without the profiler where that is known.
        step_us: what a step takes then, in the long run.
        fast_us, slow_us: the same with all uncertain figures at best and at worst, widened by the error of
            the replay. Where the host limits the run or the answer, from what the device needs to what the
            host took as it was recorded.
        speedup_low, speedup_high: of the same pairs of steps, with and without the optimisations.
        host: of the run as it was; None where the host does not limit it, or there is no device.
        host_limits: whether the host limits the run or the answer.
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
    speedup_low: float
    speedup_high: float
    host: HostLimit | None
    host_limits: bool
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


def none_answered(refused: Sequence[Refusal], first: DacemlError) -> DacemlError:
    """The error of questions that are all refused, of the kind of the first one, with the reason of each."""
    if len(refused) == 1:
        return first
    return type(first)(
        f"none of the {len(refused)} questions can be answered",
        where=first.where,
        why="\n".join(f"{one.title} [{one.code}]: {one.reason}" for one in refused),
        fix="give the facts that are missing, or record a run that has what the questions change",
    )


def predict_each(
    graph: TaskGraph,
    optimizations: Sequence[Optimization],
    *,
    baseline: Schedule | None = None,
    lacking: Sequence[Refusal] = (),
) -> tuple[list[Prediction], list[Refusal]]:
    """Answers for each optimisation alone, then for all together that can be applied, if they are several.

    Args:
        lacking: questions that were refused before, which the refusals begin with.
    Raises:
        WhatIfError, ImplausibleAnswerError: none of them can be answered; the message says why of each.
    """
    run = _Run.of(graph, baseline)
    found: list[Prediction] = []
    usable: list[Optimization] = []
    refused = [*lacking]
    first: DacemlError | None = None
    for optimization in optimizations:
        try:
            found.append(_answer(run, [optimization]))
            usable.append(optimization)
        except (WhatIfError, ImplausibleAnswerError) as error:
            first = first or error
            refused.append(Refusal.of(optimization.label, error))
    if first is not None and not found:
        raise none_answered(refused, first)
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
        step_us: what a step of that takes; `device_us` if threads cost nothing.
    """

    replay: Schedule
    scale: StepScale
    graph: TaskGraph
    step_us: float
    device_us: float

    @classmethod
    def of(cls, graph: TaskGraph, replay: Schedule | None) -> _Run:
        replay = simulate(graph) if replay is None else replay
        scale, plain = StepScale.of(replay), without_profiler(graph)
        step_us = scale.recorded_us if plain is graph else scale.step_us(simulate(plain))
        device_us = scale.step_us(simulate(without_host(plain))) if has_device(plain) else step_us
        return cls(replay=replay, scale=scale, graph=plain, step_us=step_us, device_us=device_us)

    @property
    def host(self) -> HostLimit | None:
        """None where the host does not limit the run."""
        if not host_limits(self.step_us, self.device_us):
            return None
        return HostLimit(step_us=self.step_us, device_us=self.device_us, recorded_us=self.scale.recorded_us)


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A step without and with what is asked, under the same circumstances."""

    before_us: float
    after_us: float


def _pairs(
    run: _Run, optimizations: Sequence[Optimization], schedules: Mapping[Side, Schedule]
) -> list[_Pair]:
    """At best, likely and at worst; where the host limits either step, without it and as recorded, too."""
    found = [
        _Pair(before_us=run.step_us, after_us=run.scale.step_us(schedule)) for schedule in schedules.values()
    ]
    if not has_device(run.graph):
        return found
    policy = _policy(optimizations)
    free = [
        _Pair(
            before_us=run.device_us,
            after_us=run.scale.step_us(simulate(without_host(schedule.graph), policy)),
        )
        for schedule in schedules.values()
    ]
    if run.host is None and not host_limits(found[0].after_us, free[0].after_us):
        return found
    recorded = _schedule(run.replay.graph, optimizations, "slow")
    return [
        *found,
        *free,
        _Pair(before_us=run.scale.recorded_us, after_us=run.scale.step_us(recorded)),
    ]


def _answer(run: _Run, optimizations: Sequence[Optimization]) -> Prediction:
    _check_alternatives(optimizations)
    titles = tuple(optimization.label for optimization in optimizations)
    optimizations = sorted(optimizations, key=lambda one: one.sees_others)
    error = step_error(run.replay)
    schedules: dict[Side, Schedule] = {side: _schedule(run.graph, optimizations, side) for side in _SIDES}
    pairs = _pairs(run, optimizations, schedules)
    samples = math.prod(optimization.samples for optimization in optimizations)
    times_us = [pair.after_us for pair in pairs]
    speedups = [samples * pair.before_us / pair.after_us if pair.after_us > 0 else math.inf for pair in pairs]
    assumptions: list[str] = []
    moved_us = 0.0
    changed = run.graph
    for optimization in optimizations:
        assumptions += optimization.assumptions(changed)
        moved_us = max(moved_us, optimization.moved_us(changed))
        changed = applied(optimization, changed)
    found = Prediction(
        titles=titles,
        baseline=run.replay,
        schedule=schedules["likely"],
        baseline_us=run.step_us,
        step_us=times_us[0],
        fast_us=min(times_us) * max(1.0 - error, 0.0),
        slow_us=max(times_us) * (1.0 + error),
        speedup_low=min(speedups),
        speedup_high=max(speedups),
        host=run.host,
        host_limits=len(pairs) > len(_SIDES),
        replay_error=error,
        samples=samples,
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


def _policy(optimizations: Sequence[Optimization]) -> SchedulingPolicy | None:
    policies = [policy for one in optimizations if (policy := one.policy) is not None]
    if len(set(policies)) > 1:
        raise WhatIfError(
            "two of these optimisations schedule in different ways", fix="ask about them one at a time"
        )
    return policies[0] if policies else None


def _schedule(graph: TaskGraph, optimizations: Sequence[Optimization], side: Side) -> Schedule:
    policy = _policy(optimizations)
    for optimization in optimizations:
        graph = applied(optimization.at(side), graph)
    return simulate(graph, policy)
