from __future__ import annotations

import os
from pathlib import Path

import pytest

from daceml.profiling.kineto import read_trace
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate
from tests.support.golden import golden
from tests.support.recorded_calls import Recording


def test_kernels_that_last_no_time_at_all_are_replayed_and_their_delay_is_told():
    run = Recording()
    run.call("cudaLaunchKernel", 100, 5, ("first", 7, 110, 0))
    run.call("cudaLaunchKernel", 120, 5, ("second", 7, 9000, 0))
    schedule = run.replayed()
    assert schedule["second"] < (130, 130)  # soon after its launch
    assert schedule.graph.notes[-1] == golden() and "8.8 ms" in schedule.graph.notes[-1]


def test_a_stream_that_still_does_older_work_begins_late_in_the_replay_too():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("first", 7, 400_000, 100))
    run.call("cudaLaunchKernel", 10, 5, ("second", 7, 400_101, 50))
    run.call("cudaLaunchKernel", 20, 5, ("elsewhere", 9, 28, 50))
    schedule = run.replayed()
    assert schedule["first"] == (400_000, 400_100) and schedule["second"] == (400_101, 400_151)
    note = schedule.graph.notes[-1]
    assert note == golden() and "gpu 0 stream 7" in note and "before the recording" in note


def test_a_file_of_kernels_that_last_no_time():
    file = Path(os.environ.get("DACEML_DATA", "")) / "faults" / "zero_durations.json.gz"
    if not file.is_file():
        pytest.skip("DACEML_DATA has no traces that broke the reader")
    assert simulate(build(read_trace(file))).makespan_us > 0
