"""Laws that every predicted step obeys; an answer that breaks one is refused, whichever command asks.

The model obeys them by construction. The guards are the net below it: a rule of an optimization that loses
work, or a trace that a rule does not fit, must not become an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daceml.errors import ImplausibleAnswerError
from daceml.simulation.graph import TaskGraph

_ROUNDING = 1e-6  # share by which sums of times may differ


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A predicted step, with the facts that bound it; times in microseconds.

    Attributes:
        title: of the question.
        low_us, high_us: the interval of `step_us`.
        baseline_us: the step without what is asked; None where no such step is known.
        may_cost: whether what is asked can make a step slower.
        least_us: what the remaining work takes on the device, link or worker that has most of it.
        devices: that share the samples.
        one_device_us: the step of one device with all that is asked of a single device; None where nothing
            is asked of several.
    """

    title: str
    step_us: float
    low_us: float
    high_us: float
    baseline_us: float | None = None
    may_cost: bool = True
    least_us: float = 0.0
    devices: float = 1.0
    one_device_us: float | None = None


def _takes_time(answer: Answer) -> str | None:
    if not (math.isfinite(answer.step_us) and answer.step_us > 0):
        return f"a step of {_ms(answer.step_us)} does no work"
    return None


def _inside_its_interval(answer: Answer) -> str | None:
    known = math.isfinite(answer.high_us) and answer.low_us >= 0
    if not known or _less(answer.step_us, answer.low_us) or _less(answer.high_us, answer.step_us):
        return f"{_ms(answer.step_us)} is not between {_ms(answer.low_us)} and {_ms(answer.high_us)}"
    return None


def _scales_at_most_linearly(answer: Answer) -> str | None:
    if answer.one_device_us is None or not _less(answer.step_us, answer.one_device_us):
        return None
    return (
        f"a step of {_ms(answer.step_us)} on {answer.devices:g} devices, which takes"
        f" {_ms(answer.one_device_us)} on one, is a speedup of"
        f" {answer.devices * answer.one_device_us / answer.step_us:.2f}"
    )


def _does_the_remaining_work(answer: Answer) -> str | None:
    if not _less(answer.step_us, answer.least_us):
        return None
    return f"the remaining work takes {_ms(answer.least_us)}, the predicted step {_ms(answer.step_us)}"


def _costs_only_where_it_can(answer: Answer) -> str | None:
    if answer.may_cost or answer.baseline_us is None or not _less(answer.baseline_us, answer.step_us):
        return None
    return (
        f"the predicted step takes {_ms(answer.step_us)}, that without it {_ms(answer.baseline_us)}, and"
        " it adds no work"
    )


LAWS: dict[str, Callable[[Answer], str | None]] = {
    "a step takes time": _takes_time,
    "n devices are at most n times as fast": _scales_at_most_linearly,
    "a step is no faster than its remaining work": _does_the_remaining_work,
    "less work does not slow a step down": _costs_only_where_it_can,
    "an answer lies inside its interval": _inside_its_interval,
}


def check_answer(answer: Answer, *, where: str = "") -> None:
    """Refuse an answer that breaks a law.

    Args:
        where: the trace or the model that was asked about.
    Raises:
        ImplausibleAnswerError: the message names the law and the times that break it.
    """
    for law, broken in LAWS.items():
        reason = broken(answer)
        if reason is not None:
            raise ImplausibleAnswerError(
                f"the prediction for {answer.title} is not plausible: {law}",
                where=where,
                why=reason,
                fix="leave the question out, and report it with the trace: a rule does not fit this run",
            )


def remaining_work_us(graph: TaskGraph) -> float:
    """What all steps of a graph take at least: the work of the busiest device, link or thread."""
    tasks = graph.tasks
    overlap_us = np.where(graph.structure.before >= 0, np.minimum(tasks.gap_us, 0.0), 0.0)
    inside = tasks.step >= 0
    work_us = (tasks.duration_us + overlap_us)[inside]
    return float(np.bincount(tasks.lane[inside], work_us, minlength=1).max(initial=0.0))


def _less(first_us: float, second_us: float) -> bool:
    """Whether a time is below another one by more than rounding."""
    return first_us < second_us * (1 - _ROUNDING)


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.3f} ms"
