from __future__ import annotations

from tests.support.recorded_calls import Recording, with_duration


def a_kernel_and(name: str, lasts: float) -> Recording:
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call(name, 10, lasts)
    run.call("cudaLaunchKernel", 10 + lasts + 5, 5, ("next", 7, 10 + lasts + 13, 10))
    return run


def test_a_stream_synchronisation_waits_for_the_stream_and_no_longer():
    run = a_kernel_and("cudaStreamSynchronize", 102)
    schedule = run.replayed()
    assert schedule["cudaStreamSynchronize"] == (108, 112)  # 4 us are its own
    shorter = with_duration(run.graph(), "gemm", 30)
    assert shorter["cudaStreamSynchronize"] == (38, 42)
    assert shorter["next"][0] == 55


def test_freeing_memory_and_device_synchronisation_wait_for_every_stream():
    for name in ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cudaFree"):
        run = Recording()
        run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
        run.call("cudaLaunchKernel", 5, 3, ("copy", 9, 13, 200))
        run.call(name, 10, 205)
        graph = run.graph()
        assert with_duration(graph, "copy", 10)[name] == (108, 110)
        assert with_duration(graph, "gemm", 900)[name] == (908, 910)


def test_work_that_is_given_later_is_not_waited_for():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call("cudaStreamSynchronize", 10, 102)
    run.call("cudaLaunchKernel", 120, 5, ("later", 7, 128, 50))
    assert with_duration(run.graph(), "later", 5000)["cudaStreamSynchronize"] == (108, 112)


def test_an_event_synchronisation_waits_for_what_came_before_the_event():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("before", 7, 8, 100))
    record = run.call("cudaEventRecord", 6, 1)
    run.call("cudaLaunchKernel", 8, 5, ("behind", 7, 109, 400))
    wait = run.call("cudaEventSynchronize", 20, 90)
    run.sync(
        "Event Sync", wait, 20, 90, wait_on_stream=7, wait_on_cuda_event_record_corr_id=record, stream=-1
    )
    graph = run.graph()
    assert with_duration(graph, "behind", 9000)["cudaEventSynchronize"] == (108, 110)
    assert with_duration(graph, "before", 50)["cudaEventSynchronize"] == (58, 60)


def test_a_pageable_copy_to_the_host_is_waited_for_by_its_own_call():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call("cudaMemcpyAsync", 10, 110, ("Memcpy DtoH (Device -> Pageable)", 7, 109, 3))
    run.call("cudaLaunchKernel", 130, 5, ("next", 7, 138, 10))
    graph = run.graph()
    replayed = with_duration(graph, "gemm", 100)
    assert replayed["cudaMemcpyAsync"] == (10, 15)
    assert replayed["cudaMemcpyAsync returns"] == (112, 120)
    assert with_duration(graph, "gemm", 20)["cudaMemcpyAsync returns"] == (32, 40)
    assert with_duration(graph, "gemm", 20)["next"] == (58, 68)


def test_a_copy_from_pinned_memory_is_not_waited_for():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call("cudaMemcpyAsync", 10, 6, ("Memcpy DtoH (Device -> Pinned)", 7, 109, 3))
    assert run.replayed()["cudaMemcpyAsync"] == (10, 16)


def test_a_copy_that_is_staged_in_parts_is_waited_for_until_it_begins():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 100))
    run.call("cudaMemcpyAsync", 10, 150, ("Memcpy HtoD (Pageable -> Device)", 7, 109, 60))
    run.call("cudaLaunchKernel", 170, 5, ("next", 7, 178, 10))
    graph = run.graph()
    assert with_duration(graph, "gemm", 100)["cudaMemcpyAsync returns"] == (109, 160)  # before the copy ends
    shorter = with_duration(graph, "gemm", 20)
    assert shorter["cudaMemcpyAsync returns"] == (29, 80)
    assert shorter["next"] == (98, 108)
