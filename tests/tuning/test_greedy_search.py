"""The search as a story: candidates with known times, a clock that only compiling moves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from daceml.errors import BuildError
from daceml.runtime.timing.comparison import Comparison
from daceml.tuning.decision import Decision, Trial
from daceml.tuning.greedy_search import decide
from tests.support.golden import golden

ROUNDS = 21


@dataclass
class Found:
    """A candidate: its choices stand for its program unless another one's do."""

    choices: tuple[str, ...]
    identity: str


@dataclass
class Ran:
    """A compiled candidate."""

    choices: tuple[str, ...]
    differs: str = ""

    def difference(self, other: Ran) -> str:
        return self.differs


@dataclass
class Fake:
    """A world in which every choice multiplies the time by a factor, predicted or real.

    Attributes:
        refused, differs: choice -> why.
        alike: choices that change nothing.
        compile_s: what one compilation takes.
    """

    predicted: Mapping[str, float] = field(default_factory=dict)
    real: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)
    alike: frozenset[str] = frozenset()
    compile_s: float = 1.0
    now_s: float = 100.0
    compiled: list[tuple[str, ...]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def lower(self, choices: tuple[str, ...]) -> Found:
        for name in choices:
            if name in self.refused:
                raise BuildError("it cannot be built", why=self.refused[name])
        return Found(choices, repr([c for c in choices if c not in self.alike]))

    def predicted_ms(self, candidate: Found) -> float:
        return self._product(candidate.choices, self.predicted)

    def compile(self, candidate: Found) -> Ran:
        self.now_s += self.compile_s
        self.compiled.append(candidate.choices)
        return Ran(
            candidate.choices, next((self.differs[c] for c in candidate.choices if c in self.differs), "")
        )

    def learn(self, candidate: Found, run: Ran) -> None:
        assert candidate.choices == run.choices == ()

    def measure(self, runs: Mapping[str, Ran], **_: Any) -> Comparison:
        """Rounds that are 2 % apart, up and down."""
        noise = [1.0, 1.02, 0.98]
        times = {name: self._product(run.choices, self.real) for name, run in runs.items()}
        return Comparison(
            rounds=tuple(
                {name: ms * (noise[i % 3] if name == "candidate" else 1.0) for name, ms in times.items()}
                for i in range(ROUNDS)
            )
        )

    def decide(self, names: list[str], budget_s: float = 60.0, **options: Any) -> Decision:
        return decide(
            self, names, budget_s=budget_s, clock=self.clock, **{"measure": self.measure, **options}
        )

    def _product(self, choices: tuple[str, ...], factors: Mapping[str, float]) -> float:
        result = 10.0
        for name in choices:
            result *= factors.get(name, 1.0)
        return result


def outcomes(decision: Decision) -> dict[str, str]:
    return {trial.name: trial.outcome for trial in decision.trials}


def trial(decision: Decision, name: str) -> Trial:
    (found,) = (t for t in decision.trials if t.name == name)
    return found


def test_what_is_faster_is_chosen_and_what_is_not_is_not():
    decision = Fake(predicted={"a": 0.9, "b": 1.1}, real={"a": 0.8, "b": 1.1}).decide(["b", "a"])
    assert decision.choices == ("a",) and decision.complete and decision.title == "a"
    assert outcomes(decision) == {"standard recipe": "standard recipe", "a": "chosen", "a + b": "not faster"}
    measured = trial(decision, "a").measured
    assert measured is not None
    assert measured.ratio == pytest.approx(0.8) and measured.high == pytest.approx(0.816)
    assert trial(decision, "standard recipe").measured is not None


def test_choices_are_built_on_each_other():
    world = Fake(predicted={"a": 0.8, "b": 0.9, "c": 0.95}, real={"a": 0.9, "b": 0.9, "c": 1.2})
    decision = world.decide(["c", "b", "a"])
    assert decision.choices == ("a", "b")
    assert outcomes(decision) == {
        "standard recipe": "standard recipe",
        "a": "part of what was chosen",
        "a + b": "chosen",
        "a + b + c": "not faster",
    }


def test_an_interval_that_reaches_the_standard_recipe_is_not_enough():
    decision = Fake(real={"a": 0.99}).decide(["a"])  # 0.99 * 1.02 > 1
    assert decision.choices == () and decision.title == golden()
    assert outcomes(decision)["a"] == "not faster"


def test_what_adds_nothing_to_the_best_is_left_out():
    decision = Fake(predicted={"a": 0.8}, real={"a": 0.8, "b": 0.995}).decide(["a", "b"])
    assert decision.choices == ("a",)
    why = trial(decision, "a + b").why
    assert "0.995 [0.975, 1.015]" in why and why.endswith(" a") and why == golden()


def test_luck_that_does_not_come_again_is_not_chosen():
    world = Fake(real={"a": 1.0})
    rounds = iter([0.8, 1.0])

    def lucky(runs: Mapping[str, Ran], **options: Any) -> Comparison:
        seen, factor = world.measure(runs, **options), next(rounds)
        return Comparison(rounds=tuple({**r, "candidate": r["candidate"] * factor} for r in seen.rounds))

    decision = world.decide(["a"], measure=lucky)
    assert decision.choices == ()
    assert trial(decision, "a").outcome == "not confirmed"
    why = trial(decision, "a").why
    assert "0.800 [0.784, 0.816]" in why and why == golden()


def test_identical_programs_are_compiled_once():
    world = Fake(alike=frozenset({"a"}), predicted={"b": 0.9})
    decision = world.decide(["a", "b"])
    assert outcomes(decision)["a"] == "identical program"
    assert trial(decision, "a").why == golden()
    assert world.compiled == [(), ("b",)]


def test_what_is_predicted_far_worse_than_the_best_is_not_compiled():
    world = Fake(predicted={"a": 0.7, "b": 1.0, "c": 0.8}, real={"a": 1.1, "b": 0.1, "c": 1.1})
    decision = world.decide(["a", "b", "c"], margin=1.3)
    assert outcomes(decision)["b"] == "predicted worse"
    assert "1.43" in trial(decision, "b").why and trial(decision, "b").why == golden()
    assert ("b",) not in world.compiled and ("c",) in world.compiled


def test_what_gives_other_results_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture):
    world = Fake(real={"a": 0.1}, differs={"a": "y differs by 1.0 of its size"})
    with caplog.at_level(logging.WARNING, logger="daceml"):
        decision = world.decide(["a"])
    assert decision.choices == () and trial(decision, "a").outcome == "results differ"
    (message,) = caplog.messages
    assert "(a)" in message and "y differs by 1.0 of its size" in message and message == golden()


def test_what_cannot_be_built_says_why():
    decision = Fake(refused={"a": "no such kernel"}, real={"b": 0.5}).decide(["a", "b"])
    assert decision.choices == ("b",)
    assert trial(decision, "a").outcome == "refused"
    assert "no such kernel" in trial(decision, "a").why and trial(decision, "a").why == golden()


def test_the_budget_ends_the_search_and_the_best_so_far_is_kept():
    world = Fake(predicted={"a": 0.8, "b": 0.9}, real={"a": 0.8, "b": 0.1}, compile_s=5.0)
    decision = world.decide(["a", "b"], budget_s=10.0)
    assert decision.choices == ("a",) and not decision.complete
    assert outcomes(decision)["a + b"] == "budget used up"
    assert world.compiled == [(), ("a",)] and decision.spent_s == 10.0


def test_without_any_budget_the_standard_recipe_is_compiled():
    world = Fake(real={"a": 0.1})
    decision = world.decide(["a"], budget_s=0.0)
    assert decision.choices == () and world.compiled == [()]
    assert outcomes(decision)["a"] == "budget used up"


def test_a_standard_recipe_that_fails_is_an_error():
    class Broken(Fake):
        def lower(self, choices: tuple[str, ...]) -> Found:
            raise BuildError("it cannot be built")

    with pytest.raises(BuildError):
        Broken().decide(["a"])
