from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from daceml.profiling.kineto import read_trace
from daceml.simulation.building.build import build
from daceml.simulation.building.contradictions import without_contradictions
from daceml.simulation.engine import simulate
from tests.support.golden import golden
from tests.support.recorded_calls import Recording
from tests.support.task_stories import graph_of


def test_kernels_that_are_stamped_before_their_launch_are_replayed_and_told():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("second", 7, 8, 10))
    run.call("cudaStreamSynchronize", 10, 20)
    run.call("cudaLaunchKernel", 40, 5, ("first", 7, 2, 5))  # on its stream before work that is waited for
    graph = run.graph()
    assert graph.notes[-1] == golden() and "1 waits" in graph.notes[-1]
    assert np.isfinite(simulate(graph).end_us).all()


def test_a_graph_without_contradictions_is_left_alone():
    graph = graph_of("a cpu 1", "b gpu0 1 after a", "c gpu1 1 after b")
    assert without_contradictions(graph) is graph


def test_two_streams_whose_empty_kernels_touch_wait_for_each_other_once():
    run = Recording()
    for stream, name in ((7, "left"), (9, "right")):
        run.call("cudaStreamWaitEvent", 1.0 * stream, 0.5)
        run.call("cudaLaunchKernel", 10.0 + stream, 1, (name, stream, 100.0, 0.5))
    run.call("cudaStreamWaitEvent", 30, 0.5)
    run.call("cudaLaunchKernel", 31, 1, ("after", 7, 102, 1))
    assert np.isfinite(simulate(run.graph()).end_us).all()


def test_a_recorded_copy_whose_call_lasts_45_ms():
    file = Path(os.environ.get("DACEML_DATA", "")) / "faults" / "pageable_copy_cycle.json.gz"
    if not file.is_file():
        pytest.skip("DACEML_DATA has no traces that broke the reader")
    graph = build(read_trace(file))
    recorded = np.nanmax(graph.tasks.recorded_us + graph.tasks.duration_us)
    assert abs(simulate(graph).makespan_us / recorded - 1) < 0.02
