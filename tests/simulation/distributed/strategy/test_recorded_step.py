from __future__ import annotations

from dataclasses import replace

import pytest

from daceml.errors import RecordedStepError
from daceml.profiling.trace import Trace
from daceml.simulation.distributed.recorded_run import RecordedRun
from daceml.simulation.distributed.strategy.recorded_step import RecordedStep, SentGradients, recorded_step
from daceml.simulation.distributed.strategy.training_step import Part
from tests.simulation.distributed.strategy.steps import sums
from tests.support.golden import golden, raises
from tests.support.recorded_ranks import RankRecording
from tests.support.recorded_training import (
    LAYERS,
    MB,
    UPDATE_US,
    header,
    step_us,
    sum_us,
    traces,
)

# operators that only begin a collective take 2 us of the host
HOST = 0.001


def of(recorded: list[Trace], **more: object) -> RecordedStep:
    run = RecordedRun.of(recorded)
    gradients = SentGradients.of(recorded[0].header)
    return recorded_step(run.run, run.alignment, gradients, **more)  # pyright: ignore[reportArgumentType]


def test_a_recorded_step_is_what_was_recorded():
    found = of(traces())
    assert found.recorded_us == pytest.approx([step_us()] * 3, rel=HOST)
    forward, last, first = found.step.computations[:3]
    assert (forward.part, forward.duration_us) == (Part.FORWARD, pytest.approx(3000, rel=HOST))
    assert (last.duration_us, last.gradient_bytes) == (pytest.approx(3000, rel=HOST), 4 * MB)
    assert (first.duration_us, first.parameters) == (pytest.approx(4000, rel=HOST), ("module.first.weight",))
    assert found.step.update_us == pytest.approx(UPDATE_US, rel=0.02)
    assert found.step.slowness == ()
    assert [found.synchronization.sync_us(layer[1]) for layer in LAYERS] == pytest.approx(
        [sum_us(layer[1]) for layer in LAYERS], rel=HOST
    )
    assert abs(found.error) < HOST


def test_other_buckets_take_as_long_as_the_run_would():
    found = of(traces())
    # all in one bucket: nothing hides
    together = 3000 + 3000 + 4000 + sum_us(6 * MB) + UPDATE_US
    assert found.with_limit(25 * 2**20).step_us == pytest.approx(together, rel=0.01)


def test_a_rank_that_is_always_late_is_the_step_and_the_other_one_is_faster():
    found = of(traces([(1.0, 1.25)] * 3))
    assert found.step.slowness == (0.8, 1.0)
    assert found.typical_us == pytest.approx(step_us(1.25), rel=HOST)
    assert abs(found.error) < HOST


def test_ranks_that_are_late_in_turn_make_steps_as_long_as_the_late_one():
    found = of(traces([(1.0, 1.25), (1.25, 1.0), (1.0, 1.25), (1.25, 1.0)]))
    assert found.typical_us == pytest.approx(step_us(1.25), rel=HOST)
    assert abs(found.error) < HOST, "medians of each rank alone would give a shorter step"


def test_a_link_that_is_given_takes_the_place_of_the_recorded_sums():
    found = of(traces(), synchronization=sums(us_per_mb=0.0))
    assert found.under(found.plan).step_us == pytest.approx(10_000 + UPDATE_US, rel=0.01)  # pyright: ignore[reportArgumentType]
    assert found.notes[1] == golden()


def test_a_gradient_of_an_unknown_layer_is_ready_by_its_share_of_bytes():
    recorded = traces()
    gradients = SentGradients.of(recorded[0].header)
    moved = [replace(one, layer="elsewhere") for one in gradients.order]
    run = RecordedRun.of(recorded)
    found = recorded_step(run.run, run.alignment, SentGradients(order=tuple(moved), sizes=gradients.sizes))
    assert found.notes[-1] == golden() and "100%" in found.notes[-1]
    assert found.plan is None
    assert str(found.error) == "nan"


def test_a_trace_without_gradients_is_refused_with_what_to_do():
    with raises(RecordedStepError, "run_rank0.json", "daceml.profile(model)", "DistributedDataParallel"):
        SentGradients.of({}, "run_rank0.json")


def test_one_rank_alone_and_a_run_without_sums_are_refused():
    recorded = traces()
    with raises(RecordedStepError, "1 rank"):
        of(recorded[:1])
    run = RecordedRun.of(recorded)
    gradients = SentGradients(order=SentGradients.of(header()).order, sizes=frozenset({1.0}))
    with raises(RecordedStepError, "all-reduce"):
        recorded_step(run.run, run.alignment, gradients)


def test_a_backward_pass_that_is_one_call_with_its_sums_inside_is_refused():
    ranks = [RankRecording(rank) for rank in (0, 1)]
    for run in ranks:
        run.annotation("ProfilerStep#0", 0, 9000)
        run.annotation("daceml.layer: module", 10, 900)
        run.operator("daceml::call", 10, 900, sequence=1)
        run.operator("autograd::engine::evaluate_function: CallBackward0", 1000, 7000, sequence=1)
        run.operator("daceml::call_held", 1000, 7000, sequence=1)
        facts = {"Input Dims": [[MB]], "Input type": ["float"]}
        run._add("user_annotation", "gloo:all_reduce", 200, 3000, 2000, **facts)
    recorded = [rank.trace(**header()) for rank in ranks]
    with raises(RecordedStepError, "rank0", "DistributedDataParallel"):
        of(recorded)
