"""Rounds of programs whose time is known, by a clock that they move themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daceml.runtime.timing import comparison as measurement
from daceml.runtime.timing.comparison import FEWEST_ROUNDS, ROUNDS, Comparison, compare
from daceml.runtime.timing.machine_load import CpuTimes


class Clock:
    """Seconds that pass only where something runs."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Program:
    """Takes as long as it says."""

    def __init__(self, clock: Clock, *call_s: float) -> None:
        self.clock, self.call_s, self.calls, self.resets = clock, call_s, 0, 0

    def __call__(self) -> None:
        self.clock.now_s += self.call_s[self.calls % len(self.call_s)]
        self.calls += 1

    def reset(self) -> None:
        self.resets += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(
        "daceml.runtime.timing.machine_load.cpu_times", lambda **_: CpuTimes(busy_s=0.0, total_s=0.0)
    )
    return Clock()


def test_ratios_are_those_of_the_times(clock: Clock):
    seen = compare({"a": Program(clock, 0.002), "b": Program(clock, 0.004)}, clock=clock)
    assert len(seen.rounds) == ROUNDS
    assert seen.ms("a") == pytest.approx(2.0)
    ratio = seen.ratio("a", "b")
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio.confidence >= 0.99


def test_a_pause_within_a_slice_does_not_count(clock: Clock):
    paused = Program(clock, *([0.0005] * 9), 0.05)
    seen = compare({"a": paused, "b": Program(clock, 0.0005)}, clock=clock)
    assert seen.ratio("a", "b").value < 2.0


def test_what_calls_change_is_put_back_in_every_round(clock: Clock):
    program = Program(clock, 0.002)
    compare({"a": program}, clock=clock)
    assert program.resets == ROUNDS + 1


def test_it_ends_early_where_that_is_enough_or_the_time_is_over(clock: Clock):
    def programs() -> dict[str, Program]:
        return {"a": Program(clock, 0.3)}

    assert len(compare(programs(), limit_s=1.0, clock=clock).rounds) == FEWEST_ROUNDS
    assert len(compare(programs(), enough=lambda seen: True, clock=clock).rounds) == FEWEST_ROUNDS
    assert Comparison(rounds=({"a": 1.0},) * FEWEST_ROUNDS).ratio("a", "a").confidence >= 0.99


def test_rounds_that_others_disturb_are_left_out(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    def times() -> Iterator[CpuTimes]:
        busy = 0.0
        for number in range(10_000):
            busy += 0.5 * (number % 4 == 1)  # during every second round somebody takes half of the machine
            yield CpuTimes(busy_s=busy, total_s=float(number))

    machine = times()
    monkeypatch.setattr("daceml.runtime.timing.machine_load.cpu_times", lambda **_: next(machine))
    monkeypatch.setattr(measurement.time, "process_time", lambda: 0.0)
    program = Program(clock, 0.002)
    compare({"a": program}, clock=clock)
    assert program.resets == 1 + 2 * ROUNDS


def test_a_machine_that_says_nothing_of_others_is_taken_as_quiet(monkeypatch: pytest.MonkeyPatch):
    def absent(**_: object) -> CpuTimes:
        raise FileNotFoundError

    monkeypatch.setattr("daceml.runtime.timing.machine_load.cpu_times", absent)
    clock = Clock()
    assert len(compare({"a": Program(clock, 0.002)}, clock=clock).rounds) == ROUNDS
