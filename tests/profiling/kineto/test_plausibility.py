"""Files whose times are no microseconds, or that lack a part of a run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.trace_examples import as_bytes, document, operator, training_run
from daceml.errors import TraceContentError
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from tests.support.golden import golden, raises

Change = Callable[[dict[str, Any]], None]


def changed(*changes: Change, steps: int = 5) -> Trace:
    """A training run, each event of which was changed."""
    content = copy.deepcopy(training_run(steps))
    for event in content["traceEvents"]:
        for change in changes:
            change(event)
    return trace_of(as_bytes(content), "run.json")


def later(by: float) -> Change:
    def change(event: dict[str, Any]) -> None:
        if "ts" in event:
            event["ts"] += by

    return change


def in_nanoseconds(event: dict[str, Any]) -> None:
    for key in event.keys() & {"ts", "dur"}:
        event[key] *= 1000


def test_every_event_that_is_left_out_is_counted_and_a_warning_comes_first():
    content = training_run(5)
    whole = len(trace_of(as_bytes(content), "run.json").events)
    timed = [event for event in content["traceEvents"] if "dur" in event]
    for event in timed[::4]:
        event["dur"] = -event["dur"]
    lost = len(timed[::4])
    recorded = trace_of(as_bytes(content), "run.json")
    assert len(recorded.events) == whole - lost
    assert recorded.left_out == {"with a duration below zero": lost}
    assert recorded.warnings == (golden(),)
    assert f"{lost} of {whole} events" in recorded.warnings[0]


def test_one_event_of_many_is_a_note():
    content = training_run(20)
    content["traceEvents"].append({**operator("odd", 0, 1), "dur": -1})
    recorded = trace_of(as_bytes(content), "run.json")
    assert not recorded.warnings and recorded.left_out == {"with a duration below zero": 1}


def test_times_that_lost_their_digits_are_refused():
    with raises(TraceContentError, "128 us", "1e+18"):
        changed(later(1e18))


def test_large_times_that_kept_their_digits_are_read():
    early, late = changed(), changed(later(10**18))
    assert (early.events.start_us == late.events.start_us).all()


def test_nanoseconds_are_refused():
    with raises(TraceContentError, "launches", "kernels", "nanoseconds"):
        changed(in_nanoseconds)


def test_nanoseconds_of_a_run_without_a_device_are_refused():
    views = [operator("aten::view", 5e6 * number, 1200) for number in range(9)]
    with raises(TraceContentError, "nanoseconds", "compute nothing"):
        trace_of(as_bytes(document(*views)), "run.json")


def test_a_run_whose_kernels_are_long_and_whose_launches_wait_has_microseconds():
    def change(event: dict[str, Any]) -> None:
        if event.get("cat") == "kernel":
            event["dur"] *= 100

    assert len(changed(change).events)


@pytest.mark.parametrize("phase", [None, "", "q", 7, ["X"]])
def test_an_event_of_no_known_phase_is_counted(phase: Any):
    odd = {**operator("odd", 0, 1), "ph": phase}
    recorded = trace_of(as_bytes(document(operator("good", 0, 10), odd)), "run.json")
    assert sum(recorded.left_out.values()) == 1
    assert recorded.notes[0] == golden() and "unknown phase" in recorded.notes[0]
