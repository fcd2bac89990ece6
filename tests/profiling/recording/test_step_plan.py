"""Which step of a run is timed, warms up, or is recorded."""

from __future__ import annotations

import pytest

from daceml.errors import ConfigurationError
from daceml.profiling.recording.step_plan import Part, Plan
from tests.support.golden import raises


def test_steps_are_timed_on_both_sides_of_the_recording():
    plan = Plan(steps=3, warmup=2, unprofiled=1)
    parts = [plan.part(step).name for step in range(plan.total + 1)]
    # one more than is timed, on each side
    assert parts == [*["BEFORE"] * 2, *["WARMUP"] * 2, *["ACTIVE"] * 3, *["AFTER"] * 2, "OVER"]
    assert plan.least == 2 + 2 + 1


def test_without_unprofiled_steps_the_warm_up_comes_first():
    plan = Plan(steps=1, warmup=1, unprofiled=0)
    assert [plan.part(step) for step in range(3)] == [Part.WARMUP, Part.ACTIVE, Part.OVER]


@pytest.mark.parametrize(
    ("name", "value", "least"), [("steps", 0, 1), ("warmup", 0, 1), ("unprofiled", -1, 0)]
)
def test_numbers_that_cannot_be_are_refused(name: str, value: int, least: int):
    with raises(ConfigurationError, f"{name}={value}", f"{name}={least}"):
        Plan(**{name: value})
