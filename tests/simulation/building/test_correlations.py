"""Correlations that several calls carry."""

from __future__ import annotations

from typing import Any

from daceml.errors import TraceContentError
from daceml.simulation.analysis.steps import step_times
from tests.support.golden import golden, raises
from tests.support.recorded_calls import Recording, steps_of


def test_steps_whose_launches_share_a_number_are_told_apart_by_their_order():
    schedule = steps_of(1).replayed()
    assert step_times(schedule).step_us == step_times(steps_of(None).replayed()).step_us
    assert schedule.graph.warnings == (golden(),)
    assert "4 tasks" in schedule.graph.warnings[0]


def test_calls_that_cannot_be_told_apart_are_refused():
    run = steps_of(1)
    run.call("cudaLaunchKernel", 4010, 5)
    run.events[-1]["args"]["correlation"] = 1
    with raises(TraceContentError, "4 of the 4 tasks", "correlation"):
        run.graph()


def test_a_few_launches_that_cannot_be_told_apart_are_said():
    run = steps_of(None, count=20)
    first: dict[str, Any] = next(event for event in run.events if event["name"] == "cudaLaunchKernel")
    run.events.append({**first, "ts": 19_900.0})
    (warning,) = run.graph().warnings
    assert warning == golden() and "1 tasks" in warning


def test_an_inner_call_of_the_same_number_is_its_outer_call():
    run = Recording()
    run.call("cudaLaunchKernelExC", 0, 20, ("gemm", 7, 9, 30))
    run.call("cuLaunchKernelEx", 2, 10)
    run.events[-1]["args"]["correlation"] = 1
    assert run.graph().warnings == ()
