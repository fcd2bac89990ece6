"""An answer that breaks a law of every run is refused, with the law and the times that break it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from daceml.errors import ImplausibleAnswerError
from daceml.simulation.analysis.guards import Answer, check_answer, remaining_work_us
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GOOD = Answer(
    title="eight devices", step_us=100, low_us=90, high_us=120, baseline_us=100, may_cost=False, least_us=80,
    devices=8, one_device_us=100,
)  # fmt: skip

BROKEN = {
    "no time": ({"step_us": 0.0, "low_us": 0.0, "one_device_us": None, "least_us": 0.0}, "0.000 ms"),
    "no number": ({"step_us": math.inf, "high_us": math.inf}, "inf"),
    "more than eight times": ({"one_device_us": 101.0}, "8.08"),
    "less than its work": ({"least_us": 110.0}, "0.110 ms"),
    "slower for nothing": ({"baseline_us": 99.0}, "0.099 ms"),
    "outside of its interval": ({"high_us": 99.0}, "0.099 ms"),
}


def test_a_plausible_answer_passes():
    check_answer(GOOD)
    check_answer(dataclasses.replace(GOOD, baseline_us=99.0, may_cost=True))


@pytest.mark.parametrize(("change", "fact"), BROKEN.values(), ids=BROKEN)
def test_an_answer_that_breaks_a_law_is_refused_with_its_times(change: dict[str, float | None], fact: str):
    with raises(ImplausibleAnswerError, fact):
        check_answer(dataclasses.replace(GOOD, **change), where="a trace")


def test_rounding_breaks_no_law():
    check_answer(dataclasses.replace(GOOD, one_device_us=100 + 1e-9, least_us=100 + 1e-9))


def test_the_remaining_work_is_that_of_the_busiest_lane():
    """The second kernel begins 5 us before the first one has ended."""
    graph = graph_of(
        "launch cpu 7 step 0", "gemm gpu0 30 step 0", "add gpu0 20 gap -5 step 0", "warm-up gpu0 500"
    )
    assert remaining_work_us(graph) == 45
    assert remaining_work_us(graph_of("warm-up gpu0 500")) == 0
