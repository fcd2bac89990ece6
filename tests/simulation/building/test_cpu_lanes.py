from __future__ import annotations

import numpy as np

from daceml.errors import TraceContentError
from daceml.simulation.engine import simulate
from daceml.simulation.task import Phase, TaskKind
from tests.support.golden import golden, raises
from tests.support.recorded_calls import Recording


def test_calls_that_only_ask_are_part_of_the_gap():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 1))
    run.call("cudaEventQuery", 6, 1)
    run.call("cudaLaunchKernel", 30, 5)
    graph = run.graph()
    assert graph.tasks.gap_us[graph.tasks.kind == TaskKind.CALL].tolist() == [0, 25]


def test_a_thread_that_only_asks_is_left_out_with_a_note():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 10))
    for number in range(5):
        run.call("cudaEventQuery", 100 * number, 1, thread=300)
    graph = run.graph()
    assert [lane.name for lane in graph.lanes if lane.kind == "cpu"] == ["thread 100"]
    assert graph.notes[0] == golden() and "1" in graph.notes[0]


def test_loading_a_batch_is_a_task_around_the_calls_inside():
    run = Recording()
    run.operator("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 100)
    run.call("cudaMemcpyAsync", 50, 10, ("Memcpy HtoD (Pinned -> Device)", 7, 60, 5))
    run.call("cudaLaunchKernel", 130, 5, ("gemm", 7, 140, 10))
    graph = run.graph()
    data = graph.tasks.kind == TaskKind.DATA
    assert graph.tasks.duration_us[data].tolist() == [40, 50]
    assert (graph.tasks.phase[data] == Phase.DATA).all()
    without = np.where(data, 0.0, graph.tasks.duration_us)
    assert simulate(graph.with_times(duration_us=without))["gemm"] == (40, 50)  # since the first event


def test_a_trace_without_work_is_refused():
    run = Recording()
    run.annotation("nothing happens", 0, 10)
    with raises(TraceContentError, "ProfilerActivity.CPU", "repeat=1"):
        run.graph()
