"""Marks of training steps."""

from __future__ import annotations

from daceml.simulation.analysis.steps import recorded_step_times, step_times
from tests.support.golden import golden
from tests.support.recorded_calls import Recording, steps_of


def step_us(run: Recording) -> float:
    return step_times(run.replayed()).step_us


def test_marks_that_stand_there_twice_are_one():
    run = steps_of(None)
    run.events += [event for event in run.events if event["cat"] == "user_annotation"]
    assert step_us(run) == step_us(steps_of(None)) == 1000
    graph = run.graph()
    assert graph.step_names == tuple(f"ProfilerStep#{number}" for number in range(4))
    assert graph.notes == (golden(),) and "twice: 4" in graph.notes[0]


def test_marks_that_overlap_are_ignored_with_a_warning():
    run = steps_of(None)
    run.annotation("ProfilerStep#9", 400, 3200)
    graph = run.graph()
    assert recorded_step_times(graph).loop_us.tolist() == [1000] * 4
    assert graph.warnings == (golden(),) and "1 of 5 marks" in graph.warnings[0]


def test_steps_that_seem_to_overlap_by_a_rounded_microsecond_are_steps():
    run = Recording()
    for number in range(3):
        run.annotation(f"ProfilerStep#{number}", 1000.0 * number, 1001)
        run.call("cudaLaunchKernel", 1000.0 * number + 10, 5, ("gemm", 7, 1000.0 * number + 20, 800))
    assert len(run.graph().step_names) == 3 and not run.graph().warnings


def test_marks_on_other_threads_are_said():
    run = steps_of(None)
    run.annotation("ProfilerStep#0", 0, 10, thread=5)
    assert run.graph().notes == (golden(),) and "1 marks" in run.graph().notes[0]
