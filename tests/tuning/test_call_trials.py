"""Calls of torch's kernels alone: those that a program runs, and what predictions make of their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from daceml.codegen.planning.plan import Plan
from daceml.config import Config
from daceml.sdfg.external import AtenCall, FreshResult, PackedWeight, TensorView
from daceml.tuning import call_trials
from daceml.tuning.call_trials import CallTrials, least_two_us, trial
from daceml.tuning.model_call import Lowered, Subject
from daceml.tuning.step_times import StepTimes
from daceml.tuning.variant import Variant
from tests.tuning.speeds import MACHINE

WITHOUT = Variant(without=("use_channels_last",))


class Blocks(nn.Module):
    """Convolutions of every kind, with the activations that oneDNN takes along, a residual and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=2)
        self.depthwise = nn.Conv2d(16, 16, 5, stride=2, padding=2, groups=16)
        self.point = nn.Conv2d(16, 24, 1)
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(x + self.second(x))
        x = nn.functional.relu6(self.grouped(x))
        x = torch.relu(self.depthwise(x))
        return self.head(nn.functional.silu(self.point(x)).mean((2, 3)))


def subject(training: bool = False) -> Subject:
    torch.manual_seed(0)
    return Subject(Blocks().train(training), (torch.randn(2, 3, 32, 32),), {}, training=training)


def calls(lowered: Lowered) -> Iterator[tuple[Plan, AtenCall]]:
    for plan in lowered.plans:
        for step in plan.steps:
            if isinstance(step.action, AtenCall) and step.action.function in call_trials._FUNCTIONS:
                yield plan, step.action


@pytest.mark.parametrize(
    ("variant", "training"),
    [
        *(
            (variant, training)
            for variant in (Variant(), WITHOUT, Variant(unoptimised=True))
            for training in (False, True)
        ),
        (Variant(freeze=True), False),  # weights that are trained change
    ],
    ids=lambda value: value.title if isinstance(value, Variant) else str(value),
)
def test_a_trial_gives_what_the_program_expects_in_its_layout(variant: Variant, training: bool):
    seen: set[str] = set()
    for plan, call in calls(subject(training).lower(variant)):
        with torch.no_grad():
            found = trial(call, plan, {})()
        seen.add(call.function)
        results = found if isinstance(found, tuple) else (found,)
        fresh = [a.array for a in call.arguments if isinstance(a, FreshResult)] or [call.writes]
        wanted = [x for x in results if x is not None]
        assert len(wanted) >= len(fresh)
        desc = plan.network.sdfg.arrays[call.writes]
        result = results[0] if call.fresh or call.function.endswith("_out") else None
        if result is not None and result.dim() == len(desc.shape):
            assert tuple(result.shape) == tuple(map(int, desc.shape)), call.function
            innermost = [n for n, step in enumerate(result.stride()) if step == 1 and result.shape[n] > 1]
            assert all(int(desc.strides[n]) == 1 for n in innermost), call.function
    assert seen >= ({"convolution_backward"} if training else set())
    assert any("convolution" in function for function in seen)


def test_packed_calls_compute_what_plain_ones_do():
    packed = [one for one in calls(subject().lower(Variant(freeze=True))) if "packed" in one[1].function]
    assert {call.arguments[9] for _, call in packed} >= {1, 2}, "relu and clip"
    for plan, call in packed:
        given = [half(one, plan) for one in call.arguments]
        x, w, bias, other, _, strides, pads, dilations, group, activation, low, high = given
        expected = nn.functional.conv2d(x, w, bias, strides, pads, dilations, group)
        expected = expected if other is None else expected + other
        expected = [expected, expected.relu(), expected.clamp(low, high), nn.functional.silu(expected)]
        with torch.no_grad():
            found = trial(call, plan, {})()
        torch.testing.assert_close(found, expected[activation])


def half(given: object, plan: Plan) -> Any:
    """An argument of a call, where every element of a tensor is 0.5."""
    if isinstance(given, TensorView | PackedWeight):
        return torch.full([int(n) for n in plan.network.sdfg.arrays[given.array].shape], 0.5)
    return given


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Trials take 1,000 microseconds each, and are counted."""
    found: list[object] = []

    def fixed(run: object, expected_us: float) -> tuple[float, float]:
        found.append(run)
        return 1000.0, 1000.0

    monkeypatch.setattr(call_trials, "least_two_us", fixed)
    return found


def test_a_call_in_another_layout_takes_what_its_trial_took(timed: list[object]):
    one = subject()
    times = StepTimes(MACHINE)
    trials = CallTrials(times=times, left_s=60.0)
    other = one.lower(WITHOUT)
    tried = [fact for fact in other.facts if fact.function == "convolution"]
    before = [times.step(fact) for fact in tried]
    trials.learn(other)
    assert tried and len(timed) >= len({fact.key for fact in tried})
    for fact, untried in zip(tried, before, strict=True):
        assert times.step(fact).us == pytest.approx(1000.0)
        assert times.step(fact).sigma < untried.sigma
    count = len(timed)
    trials.learn(other)
    assert len(timed) == count, "each runs once"


def test_time_that_is_gone_is_not_spent(timed: list[object]):
    times = StepTimes(MACHINE)
    lowered = subject().lower(WITHOUT)
    CallTrials(times=times, left_s=0.0).learn(lowered)
    assert not timed and all(map(times.untried, lowered.facts))


def test_measurements_that_are_turned_off_run_no_trial(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(call_trials, "config", lambda: Config(measure=0))
    assert CallTrials(times=StepTimes(MACHINE)).left_s == 0.0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], None]]:
    """Make a call whose runs take so many seconds, one after the other."""

    def made(*seconds: float) -> Callable[[], None]:
        now, took = [0.0], iter(seconds)
        monkeypatch.setattr(call_trials.time, "perf_counter", lambda: now[0])

        def call() -> None:
            now[0] += next(took)

        return call

    return made


def test_the_shortest_of_some_runs_count_and_the_first_does_not(run: Callable[..., Callable[[], None]]):
    call = run(1.0, 0.024, 0.02, 0.04, 0.01)
    # three runs, since the first of them took all patience
    assert least_two_us(call) == pytest.approx((20_000, 24_000))


def test_a_trial_goes_on_while_its_shortest_runs_differ(run: Callable[..., Callable[[], None]]):
    call = run(1.0, 0.09, 0.01, 0.08, 0.011, 1.0)
    assert least_two_us(call) == pytest.approx((10_000, 11_000))


def test_runs_that_take_many_times_what_costs_say_go_on_for_longer(run: Callable[..., Callable[[], None]]):
    call = run(1.0, 0.03, 0.02, 0.04, 0.001, 1.0)
    assert least_two_us(call, 1_000) == pytest.approx((1_000, 20_000))
