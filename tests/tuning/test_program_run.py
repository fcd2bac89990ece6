"""Steps that are timed one by one are no more in all than the call that they make up."""

from __future__ import annotations

import pytest

from daceml.tuning.program_run import ProgramRun


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
