from __future__ import annotations

import numpy as np

from daceml.simulation.building.build import Options
from daceml.simulation.engine import simulate
from daceml.simulation.task import EdgeKind
from tests.support.recorded_calls import Recording

KERNEL_US, CALL_US, DEPTH = 100.0, 5.0, 1000


def limited_by_the_device(count: int = 1500) -> Recording:
    """Calls every 10 us, kernels of 100 us: once 1,000 wait, each call lasts until one of them starts."""
    run, now = Recording(), 0.0
    starts = [8.0 + KERNEL_US * number for number in range(count)]
    for number in range(count):
        ends = now + CALL_US
        if number > DEPTH:
            ends = max(ends, starts[number - DEPTH])
        run.call("cudaLaunchKernel", now, ends - now, (f"kernel {number}", 7, starts[number], KERNEL_US))
        now = ends + 5
    return run


def test_a_full_queue_is_learnt_and_its_waits_are_no_work_of_the_calls():
    graph = limited_by_the_device().graph()
    calls = graph.where_name(lambda name: name == "cudaLaunchKernel")
    assert graph.tasks.duration_us[calls].max() <= CALL_US + 1e-6
    assert (graph.edges.kind == EdgeKind.QUEUE).sum() >= 450
    schedule = simulate(graph)
    recorded = graph.tasks.recorded_us
    assert np.abs(schedule.start_us - recorded).max() <= KERNEL_US


def test_half_the_kernels_take_half_the_time_whatever_depth_is_assumed():
    run = limited_by_the_device()
    for depth in (None, 900, 1000, 1300):
        graph = run.graph(Options(queue_depth=depth))
        kernels = graph.on_device()
        halved = np.where(kernels, 0.5 * graph.tasks.duration_us, graph.tasks.duration_us)
        makespan_us = simulate(graph.with_times(duration_us=halved)).makespan_us
        assert abs(makespan_us / (0.5 * KERNEL_US * 1500) - 1) < 0.01


def test_without_kernels_the_calls_remain():
    graph = limited_by_the_device().graph()
    none = np.where(graph.on_device(), 0.0, graph.tasks.duration_us)
    assert abs(simulate(graph.with_times(duration_us=none)).makespan_us - 15_000) < 100


def test_a_slow_call_into_a_short_queue_is_work():
    run = Recording()
    for number in range(10):
        slow = 400.0 if number == 5 else 5.0
        run.call("cudaLaunchKernel", 1000.0 * number, slow, (f"kernel {number}", 7, 1000.0 * number + 8, 10))
    graph = run.graph()
    assert graph.tasks.duration_us.max() == 400
    assert not (graph.edges.kind == EdgeKind.QUEUE).any()


def with_a_copy_into_a_full_queue(waiting: int = 1000) -> Recording:
    """Calls every 10 us, kernels of 50 us, and a pageable copy that its call stages in parts."""
    run = Recording()
    for number in range(waiting):
        run.call("cudaLaunchKernel", 10.0 * number, 5, (f"kernel {number}", 7, 8 + 50.0 * number, 49))
    for number in range(3):
        run.call("cudaMemcpyAsync", 10.0 * number + 6, 2, (f"Memcpy DtoD {number}", 9, 10.0 * number + 14, 1))
    begins, drained = 10.0 * waiting, 8 + 50.0 * waiting
    copied = ("Memcpy HtoD (Pageable -> Device)", 7, drained, 3500)
    run.call("cudaMemcpyAsync", begins, drained + 3400 - begins, copied)
    return run


def test_a_copy_whose_call_waits_for_it_is_no_sign_of_a_full_queue():
    graph = with_a_copy_into_a_full_queue().graph()
    assert not (graph.edges.kind == EdgeKind.QUEUE).any()
    schedule = simulate(graph)
    assert np.abs(schedule.start_us - graph.tasks.recorded_us).max() < 5


def test_a_call_during_which_its_own_kernel_began_waited_for_more_than_room():
    run = Recording()
    for number in range(1000):
        run.call("cudaLaunchKernel", 10.0 * number, 5, (f"kernel {number}", 7, 8 + 50.0 * number, 49))
    run.call("cudaLaunchKernel", 10_000, 42_000, ("loaded late", 7, 50_008, 10))
    graph = run.graph()
    assert not (graph.edges.kind == EdgeKind.QUEUE).any()
    assert np.isfinite(simulate(graph).end_us).all()
