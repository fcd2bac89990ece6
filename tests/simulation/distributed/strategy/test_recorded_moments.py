from __future__ import annotations

import pytest

from daceml.errors import RecordedStepError
from daceml.simulation.distributed.recorded_run import RecordedRun
from daceml.simulation.distributed.strategy.recorded_moments import moments_of
from daceml.simulation.distributed.strategy.recorded_step import SentGradients
from tests.support.golden import raises
from tests.support.recorded_calls import MAIN
from tests.support.recorded_ranks import RankRecording, run_of
from tests.support.recorded_training import header, step_us, traces


def test_moments_of_two_ranks_of_which_one_is_slower():
    recorded = traces([(1.0, 2.0)] * 2)
    run = RecordedRun.of(recorded)
    moments = moments_of(run.run, run.alignment, SentGradients.of(recorded[0].header).order)
    assert moments.backward_us[0].tolist() == [3000, 6000]
    assert moments.ready_us[0].tolist() == [[6000, 10_002], [12_000, 20_002]]
    assert moments.passed_us[0].tolist() == [10_002, 20_002]
    assert moments.lasting_us.tolist() == pytest.approx([step_us(2.0)] * 2, abs=3)
    assert moments.unknown_share == 0


def test_a_device_is_timed_by_its_kernels():
    ranks = [RankRecording(rank) for rank in (0, 1)]
    for run in ranks:
        run.annotation("ProfilerStep#0", 0, 900)
        run.annotation("daceml.layer: first", 10, 20)
        run.operator("aten::linear", 10, 20, sequence=1)
        run.gemm(12, 40, 100)
        run.operator("autograd::engine::evaluate_function: AddmmBackward0", 50, 20, sequence=1)
        run.gemm(52, 140, 300)
        run.collective("nccl:all_reduce", 80, 440, 200)
        run._add("user_annotation", "Optimizer.step#SGD.step", MAIN, 100, 20)
        run.gemm(102, 640, 50)
    run = run_of(*ranks)
    recorded = RecordedRun.of([rank.trace(**header(wrapped=False)) for rank in ranks])
    order = SentGradients.of(header(wrapped=False)).order[1:]
    moments = moments_of(run, recorded.alignment, order)
    first = moments.began_us[0, 0]  # the trace begins earlier, with the mark of the step
    assert (moments.backward_us - first).tolist() == [[100, 100]]
    assert (moments.ready_us - first).tolist() == [[[400], [400]]]
    assert (moments.ended_us - first).tolist() == [[650, 650]]


def test_a_run_without_a_backward_pass_is_refused():
    ranks = [RankRecording(rank) for rank in (0, 1)]
    for run in ranks:
        run.annotation("ProfilerStep#0", 0, 100)
        run.operator("aten::mm", 10, 50)
        run.gloo("all_reduce", 62, 70, 20)
    recorded = RecordedRun.of([rank.trace() for rank in ranks])
    with raises(RecordedStepError, "rank 0", "step()"):
        moments_of(recorded.run, recorded.alignment, ())
