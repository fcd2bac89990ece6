from __future__ import annotations

from daceml.simulation.task import EdgeKind
from tests.support.recorded_calls import Recording, with_duration


def waits(run: Recording) -> list[tuple[str, str, str]]:
    graph, edges = run.graph(), run.graph().edges
    return [
        (
            graph.name_of(edges.source[edge]),
            graph.name_of(edges.target[edge]),
            EdgeKind(edges.kind[edge]).name,
        )
        for edge in range(len(edges))
        if edges.kind[edge] in (EdgeKind.STREAM_WAIT, EdgeKind.CONTENTION)
    ]


def test_a_recorded_wait_joins_the_streams_that_it_names():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    record = run.call("cudaEventRecord", 6, 1)
    wait = run.call("cudaStreamWaitEvent", 8, 1)
    run.sync(
        "Stream Wait Event", wait, 8, 1, stream=9, wait_on_stream=7, wait_on_cuda_event_record_corr_id=record
    )
    run.call("cudaLaunchKernel", 10, 5, ("allreduce", 9, 110, 30))
    assert waits(run) == [("gemm", "allreduce", "STREAM_WAIT")]
    assert with_duration(run.graph(), "gemm", 40)["allreduce"] == (48, 78)


def test_without_names_it_waits_for_what_the_other_stream_had_just_done():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call("cudaStreamWaitEvent", 8, 1)
    run.call("cudaLaunchKernel", 10, 5, ("allreduce", 9, 112, 30))
    assert waits(run) == [("gemm", "allreduce", "STREAM_WAIT")]


def test_what_ended_long_before_was_not_waited_for():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call("cudaStreamWaitEvent", 8, 1)
    run.call("cudaLaunchKernel", 10, 5, ("allreduce", 9, 900, 30))
    assert waits(run) == []


def test_the_work_behind_a_wait_may_be_launched_by_another_thread():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("allreduce", 9, 8, 100), thread=2)
    run.call("cudaStreamWaitEvent", 6, 1, thread=2)
    run.call("cudaLaunchKernel", 30, 5, ("adam", 7, 110, 30))
    assert waits(run) == [("allreduce", "adam", "STREAM_WAIT")]


def test_a_late_start_right_after_another_stream_is_taken_for_a_wait():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call("cudaLaunchKernel", 10, 5, ("copy", 9, 110, 30))
    run.call("cudaLaunchKernel", 300, 5, ("free", 9, 308, 30))
    assert waits(run) == [("gemm", "copy", "STREAM_WAIT")]


def test_a_kernel_that_starts_in_the_tail_of_a_large_one_waited_for_room():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("large", 7, 8, 5000))
    run.call("cudaLaunchKernel", 10, 5, ("small", 9, 4958, 30))
    run.call("cudaLaunchKernel", 6000, 5, ("free", 9, 6008, 30))
    assert waits(run) == [("large", "small", "CONTENTION")]
    assert with_duration(run.graph(), "large", 2500)["small"][0] == 2458


def test_a_kernel_beside_a_large_one_did_not_wait():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("large", 7, 8, 5000))
    run.call("cudaLaunchKernel", 10, 5, ("small", 9, 18, 30))
    assert waits(run) == []
