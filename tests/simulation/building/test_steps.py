"""Marks of training steps."""

from __future__ import annotations

import pytest

from daceml.simulation.analysis.steps import kind_times, recorded_step_times, step_error, step_times
from daceml.simulation.engine import simulate
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


def serving(run: Recording, *, mark: str, at: float, kernels: int, kernel_us: float) -> float:
    """A step of a server: a graph launch whose kernels have one correlation, and a wait; returns its end."""
    starts = [at + 20 + place * (kernel_us + 1) for place in range(kernels)]
    run.call("hipGraphLaunch", at + 5, 10, *(("attention", 7, start, kernel_us) for start in starts))
    done = starts[-1] + kernel_us
    run.call("hipEventSynchronize", at + 17, done + 2 - at - 17)
    run.annotation(mark, at, done + 5 - at)
    return done + 5


def test_steps_of_a_server_are_kept_apart_by_kind():
    run, at = Recording(), 0.0
    for number in range(6):
        prefill = number == 2
        mark = "step[EXTEND bs=2 toks=64]" if prefill else "step[DECODE bs=32]"
        at = serving(run, mark=mark, at=at, kernels=4, kernel_us=500 if prefill else 20)
        run.annotation("execute_32_context_0(sq0)_generation_32(sq32)", at - 5, 4)  # another engine's mark
    schedule = run.replayed()
    assert schedule.graph.step_names[1:3] == ("step[DECODE bs=32]", "step[EXTEND bs=2 toks=64]")
    decode, prefill = kind_times(step_times(schedule))
    assert (decode.kind, decode.steps, prefill.kind, prefill.steps) == ("decode", 5, "prefill", 1)
    assert decode.step_us == pytest.approx(20 + 4 * 20 + 3 + 5, abs=1)
    assert prefill.step_us == pytest.approx(20 + 4 * 500 + 3 + 5, abs=1)
    assert step_error(schedule) < 0.01


def test_the_replay_error_of_several_kinds_is_that_of_the_worst():
    run, at = Recording(), 0.0
    for mark, kernel_us in (*[("step[DECODE bs=32]", 20)] * 9, ("step[EXTEND bs=2 toks=64]", 500)):
        at = serving(run, mark=mark, at=at, kernels=4, kernel_us=kernel_us)
    graph = run.graph()
    kernels = graph.on_device() & (graph.tasks.duration_us > 300)
    off = simulate(graph.with_times(gap_us=graph.tasks.gap_us + 250.0 * kernels))
    decode, prefill = kind_times(step_times(off))
    recorded_us = {one.kind: one.step_us for one in kind_times(recorded_step_times(graph))}
    assert decode.step_us == pytest.approx(recorded_us["decode"], rel=0.01)
    assert prefill.step_us > 1.3 * recorded_us["prefill"]
    assert step_error(off) == pytest.approx(prefill.step_us / recorded_us["prefill"] - 1, rel=0.01)
