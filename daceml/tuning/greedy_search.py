"""The search: predict every single choice, measure the promising ones, build each on the best so far.

It knows no networks: what it is told is how to lower, predict, compile and compare candidates.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from daceml.errors import DacemlError
from daceml.runtime.timing.comparison import Comparison, Run, compare
from daceml.tuning.decision import Decision, Measured, Outcome, Trial

if TYPE_CHECKING:
    from daceml.interval import Median

log = logging.getLogger(__name__)

MARGIN = 3.0
"""What is predicted to take longer than this times the best prediction is not compiled. Of steps that the
standard recipe does not have predictions are that far off: products in the place of a small network's
convolutions took 0.75 of the standard recipe's time, and were predicted to take 2.6 times as long
(`python -m benchmarks.search small_cnn`)."""
_MEASUREMENTS = 6  # a budget is enough for so many at least
_STANDARD, _BEST, _CANDIDATE = "standard", "best", "candidate"

Choices = tuple[str, ...]


class Candidate(Protocol):
    """A candidate that has been lowered.

    Attributes:
        identity: equal for programs with the same kernels and steps.
    """

    identity: str


class Runnable(Run, Protocol):
    """A candidate that has been compiled."""

    def difference(self, other: Any) -> str:
        """How its results differ from another one's, in a sentence; empty where they do not."""
        ...


class Task(Protocol):
    """What the search asks for."""

    def lower(self, choices: Choices) -> Any:
        """A `Candidate`, not compiled.

        Raises:
            Exception: the candidate is impossible; the message says why.
        """

    def predicted_ms(self, candidate: Any) -> float:
        """Of a call."""
        ...

    def compile(self, candidate: Any) -> Any:
        """A `Runnable`.

        Raises:
            Exception: the compiler refuses.
        """

    def learn(self, candidate: Any, run: Any) -> None:
        """Let later predictions know what steps of a program take."""


def decide(
    task: Task,
    names: Sequence[str],
    *,
    budget_s: float,
    margin: float = MARGIN,
    clock: Callable[[], float] = time.monotonic,
    measure: Callable[..., Comparison] = compare,
) -> Decision:
    """Search.

    Args:
        names: of all choices.
        budget_s: the standard recipe is compiled in any case; beyond it no candidate is lowered or compiled.
        margin: see `MARGIN`.
    Raises:
        DacemlError: the standard recipe cannot be compiled.
    """
    return _Search(task, margin, measure, start_s=clock(), budget_s=budget_s, clock=clock).run(names)


@dataclass(kw_only=True)
class _Best:
    """The fastest so far."""

    choices: Choices
    run: Any


@dataclass
class _Search:
    task: Task
    margin: float
    measure: Callable[..., Comparison]
    start_s: float = field(kw_only=True)
    budget_s: float = field(kw_only=True)
    clock: Callable[[], float] = field(kw_only=True)
    trials: dict[Choices, Trial] = field(default_factory=dict[Choices, Trial])
    seen: dict[str, Choices] = field(default_factory=dict[str, Choices])
    fastest_ms: float = float("inf")  # of all predictions

    def run(self, names: Sequence[str]) -> Decision:
        lowered = self.task.lower(())
        self.standard: Any = self.task.compile(lowered)
        self.task.learn(lowered, self.standard)
        self.seen[lowered.identity] = ()
        self.fastest_ms = self.task.predicted_ms(lowered)
        self.trials[()] = Trial(choices=(), outcome="standard recipe", predicted_ms=self.fastest_ms)
        del lowered
        candidates = {name: self._lowered((name,)) for name in names}
        order = sorted(
            (name for name, found in candidates.items() if found is not None),
            key=lambda name: self.trials[name,].predicted_ms or 0.0,
        )
        best = _Best(choices=(), run=self.standard)
        for name in order:
            choices = (*best.choices, name)
            found = candidates.pop(name)
            if best.choices:
                del self.trials[name,]  # it goes on as a part
                found = self._lowered(choices)
            if found is None:
                continue
            run = self._measured(choices, found, best)
            if run is not None:
                best = _Best(choices=choices, run=run)
        return self._decision(best.choices)

    @property
    def spent_s(self) -> float:
        """Seconds since the search began."""
        return self.clock() - self.start_s

    def _share_s(self) -> float:
        """Seconds that one measurement may take."""
        return max(min(self.budget_s / _MEASUREMENTS, self.budget_s - self.spent_s), 0.0)

    def _end(self, choices: Choices, outcome: Outcome, why: str = "", **facts: Any) -> None:
        known = self.trials.get(choices, Trial(choices=choices, outcome=outcome))
        self.trials[choices] = replace(known, outcome=outcome, why=why, **facts)

    def _over(self, choices: Choices) -> bool:
        if self.spent_s < self.budget_s:
            return False
        self._end(choices, "budget used up")
        return True

    def _lowered(self, choices: Choices) -> Any:
        """A candidate that is worth to be compiled, or None."""
        if self._over(choices):
            return None
        try:
            found = self.task.lower(choices)
            predicted_ms = self.task.predicted_ms(found)
        except Exception as error:  # whatever a pass trips over: the standard recipe stands
            self._end(choices, "refused", _sentence(error))
            return None
        self._end(choices, "not faster", predicted_ms=predicted_ms)
        twin = self.seen.setdefault(found.identity, choices)
        if twin != choices:
            self._end(choices, "identical program", f"the same as {_name(twin)}")
            return None
        self.fastest_ms = min(self.fastest_ms, predicted_ms)
        return found

    def _measured(self, choices: Choices, found: Any, best: _Best) -> Any:
        """The candidate's program, if it is faster than the standard recipe and the best so far."""
        predicted_ms = self.trials[choices].predicted_ms or 0.0
        if predicted_ms > self.margin * self.fastest_ms:
            ratio = predicted_ms / self.fastest_ms
            self._end(choices, "predicted worse", f"{ratio:.2f} times the best prediction")
            return None
        if self._over(choices):
            return None
        try:
            run = self.task.compile(found)
            differs = run.difference(self.standard)
        except Exception as error:  # as above
            self._end(choices, "refused", _sentence(error))
            return None
        if differs:
            log.warning("a candidate of the search is dropped (%s): %s", _name(choices), differs)
            self._end(choices, "results differ", differs)
            return None
        runs = {_STANDARD: self.standard, _CANDIDATE: run}
        if best.choices:
            runs[_BEST] = best.run
        seen = self.measure(runs, limit_s=self._share_s(), enough=_is_slower)
        self._note(choices, seen, _CANDIDATE)
        over = seen.ratio(_CANDIDATE, _STANDARD)
        if over.high >= 1.0:
            return None
        if best.choices and (more := seen.ratio(_CANDIDATE, _BEST)).high >= 1.0:
            self._end(choices, "not faster", f"{_interval(more)} times {_name(best.choices)}")
            return None
        # once more, in rounds that did not make it the best of many
        again = self.measure({_STANDARD: self.standard, _CANDIDATE: run}, limit_s=self._share_s())
        self._note(choices, again, _CANDIDATE)
        if again.ratio(_CANDIDATE, _STANDARD).high >= 1.0:
            self._end(choices, "not confirmed", f"{_interval(over)} at first, not when measured once more")
            return None
        self._end(choices, "chosen")
        return run

    def _note(self, choices: Choices, seen: Comparison, name: str) -> None:
        ratio = seen.ratio(name, _STANDARD)
        measured = Measured(
            ms=seen.ms(name), ratio=ratio.value, low=ratio.low, high=ratio.high, rounds=ratio.n
        )
        self.trials[choices] = replace(self.trials[choices], measured=measured)
        # of the standard recipe the first time: the others are beside their own
        known = self.trials[()]
        if known.measured is None:
            first = Measured(ms=seen.ms(_STANDARD), rounds=ratio.n)
            self.trials[()] = replace(known, measured=first)

    def _decision(self, chosen: Choices) -> Decision:
        trials = list(self.trials.values())
        for place, trial in enumerate(trials):
            if trial.outcome == "chosen" and trial.choices != chosen:
                trials[place] = replace(trial, outcome="part of what was chosen")
        return Decision(
            choices=chosen,
            trials=tuple(trials),
            spent_s=round(self.spent_s, 2),
            budget_s=self.budget_s,
            complete=all(trial.outcome != "budget used up" for trial in trials),
        )


def _is_slower(seen: Comparison) -> bool:
    return seen.ratio(_CANDIDATE, _STANDARD).low > 1.0


def _name(choices: Choices) -> str:
    return " + ".join(choices) or "the standard recipe"


def _interval(ratio: Median) -> str:
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _sentence(error: Exception) -> str:
    if isinstance(error, DacemlError):
        return f"{error.what}: {error.why}".splitlines()[0].removesuffix(": ")
    return f"{type(error).__name__}: {error}".splitlines()[0]
