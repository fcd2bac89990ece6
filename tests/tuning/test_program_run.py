"""Steps that are timed one by one are no more in all than the call that they make up."""

from __future__ import annotations

import time
from itertools import count

import pytest
import torch
from torch import nn

from daceml.tuning.model_call import Subject
from daceml.tuning.program_run import ProgramRun
from daceml.tuning.variant import Variant


def timed(*profiles: list[float]) -> ProgramRun:
    """A run whose profiles are known."""
    found = object.__new__(ProgramRun)
    left = list(profiles)
    found.profile = lambda: left.pop(0)  # pyright: ignore[reportAttributeAccessIssue]
    return found


def test_steps_of_an_undisturbed_hour_stay_as_they_are():
    assert timed([30.0, 60.0]).steps_us(100.0) == [30.0, 60.0]


def test_a_disturbed_profile_is_taken_again_and_the_least_counts():
    assert timed([300.0, 60.0], [31.0, 80.0]).steps_us(100.0) == [31.0, 60.0]


def test_what_stays_too_much_is_scaled():
    found = timed(*([[300.0, 100.0]] * 4)).steps_us(100.0)
    assert found == pytest.approx([75.0, 25.0])


@pytest.mark.parametrize("training", [False, True])
def test_time_around_the_steps_is_that_of_a_call_without_its_own_steps(
    training: bool, monkeypatch: pytest.MonkeyPatch
):
    subject = Subject(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), (torch.randn(4, 6),), {}, training=training)
    run = subject.compile(subject.lower(Variant()))
    before = run.values
    seconds = count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))  # a second between two looks
    found = run.around_us()
    assert 0.5e6 < found < 1e6, "of a second, what the steps did not take"
    monkeypatch.undo()
    (results, _) = run()
    assert torch.equal(results[0], next(iter(before.values())))  # nothing is timed any more
