from __future__ import annotations

from daceml.errors import TraceContentError
from tests.support.golden import golden, raises
from tests.support.recorded_calls import Recording, with_duration


def two_kernels() -> Recording:
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("first", 7, 8, 100))
    run.call("cudaLaunchKernel", 20, 5, ("second", 7, 109, 10))
    return run


def test_a_replay_finds_every_kernel_where_it_was_recorded():
    schedule = two_kernels().replayed()
    assert schedule["first"] == (8, 108)
    assert schedule["second"] == (109, 119)


def test_a_shorter_kernel_lets_its_stream_go_on_and_no_launch_waits():
    schedule = with_duration(two_kernels().graph(), "first", 4)
    assert schedule["first"] == (8, 12)
    assert schedule["second"] == (28, 38)  # launched at 20, 8 us of latency


def test_a_kernel_starts_after_its_launch_began_not_after_it_returned():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 50, ("early", 7, 6, 10))
    assert run.replayed()["early"] == (6, 16)


def test_inner_calls_answer_to_the_outer_one():
    run = Recording()
    run.call("cudaLaunchKernelExC", 0, 20)
    run.call("cuLaunchKernelEx", 2, 10, ("gemm", 7, 9, 30))
    graph = run.graph()
    assert [graph.name_of(task) for task in graph] == ["cudaLaunchKernelExC", "gemm"]
    assert len(graph.edges) == 1


def test_work_of_steps_before_the_trace_runs_first_and_is_said():
    run = Recording()
    run.device("old", 7, 0, 100, correlation=999)
    run.call("cudaLaunchKernel", 10, 5, ("new", 7, 103, 10))
    run.call("cudaLaunchKernel", 20, 5, ("newer", 7, 114, 10))
    schedule = run.replayed()
    assert schedule["old"] == (0, 100) and schedule["new"] == (103, 113)
    (_, lost) = schedule.graph.notes
    assert lost == golden() and "1" in lost and "33%" in lost


def test_a_trace_without_the_cpu_side_is_refused():
    run = Recording()
    run.device("gemm", 7, 0, 10, correlation=5)
    with raises(TraceContentError, "1", "ProfilerActivity.CPU"):
        run.graph()


def test_a_third_of_the_launches_lost_is_a_warning():
    run = Recording()
    for number, at in enumerate((0, 100, 200)):
        run.call("cudaLaunchKernel", at, 5, (f"k{number}", 7, at + 8, 20))
    lost = next(event for event in run.events if event["cat"] == "cuda_runtime" and event["ts"] == 100)
    run.events.remove(lost)
    graph = run.graph()
    assert graph.warnings == (golden(),) and "1 of the 3" in graph.warnings[0]
    assert run.replayed()["k1"] == (108, 128)


def test_launches_lost_in_the_middle_are_refused():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("gemm", 7, 8, 1))
    for number in range(3):
        run.device("lost", 7, 20 + 10 * number, 5, correlation=100 + number)
    with raises(TraceContentError, "3", "4", "ProfilerActivity.CPU"):
        run.graph()


def test_a_launch_takes_as_long_as_it_took_if_nothing_else_explains_it():
    run = Recording()
    for number in range(12):
        run.call(
            "cudaLaunchKernel",
            1000 * number,
            5,
            (f"kernel {number}", 7, 1000 * number + 8 + 30 * (number == 5), 10),
        )
    schedule = run.replayed()
    assert schedule["kernel 5"] == (5038, 5048)
    assert schedule["kernel 6"] == (6008, 6018)


def test_a_copy_from_memory_that_may_be_moved_begins_when_it_is_staged():
    run = Recording()
    for number in range(12):
        run.call("cudaLaunchKernel", 1000 * number, 5, (f"kernel {number}", 7, 1000 * number + 8, 10))
    run.call("cudaMemcpyAsync", 20_000, 40_000, ("Memcpy HtoD (Pageable -> Device)", 7, 56_000, 4_100))
    assert run.replayed()["Memcpy HtoD (Pageable -> Device)"] == (56_000, 60_100)


def test_a_kernel_that_is_late_without_a_reason_starts_when_it_could():
    run = Recording()
    for number in range(12):
        late = 5000 * (number == 5)
        run.call(
            "cudaLaunchKernel", 10_000 * number, 5, (f"kernel {number}", 7, 10_000 * number + 8 + late, 1000)
        )
    schedule = run.replayed()
    assert schedule["kernel 5"] == (50_008, 51_008)
    (note,) = [note for note in schedule.graph.notes if "5.0 ms" in note]
    assert note == golden()
