from __future__ import annotations

from tests.support.golden import golden
from tests.support.recorded_calls import Recording, with_duration


def test_all_kernels_of_a_graph_wait_for_its_launch_and_follow_each_other():
    run = Recording()
    run.call("cudaGraphLaunch", 0, 20, ("a", 7, 15, 10), ("b", 7, 26, 10), ("c", 7, 37, 10))
    schedule = with_duration(run.graph(), "a", 4)
    assert schedule["a"] == (15, 19) and schedule["b"][0] == 20 and schedule["c"][0] == 31


def test_time_in_which_a_graph_was_at_work_unrecorded_is_work():
    run = Recording()
    run.call("cudaGraphLaunch", 0, 20, ("a", 7, 15, 10), ("z", 7, 5025, 10))
    graph = run.graph()
    hidden = "work of cudaGraphLaunch that was not recorded"
    assert simulate_of(run)[hidden] == (25, 5025)
    assert with_duration(graph, "a", 1000)["z"] == (6015, 6025)
    (note,) = [note for note in graph.notes if "5.0 ms" in note]
    assert note == golden() and "CUDA graph" in note


def test_a_graph_that_waited_for_another_stream_hid_no_work():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 5, ("allreduce", 9, 8, 3000))
    run.call("cudaGraphLaunch", 10, 20, ("a", 7, 3010, 10))
    assert not any("not recorded" in run.graph().name_of(task) for task in run.graph())


def simulate_of(run: Recording):
    return run.replayed()
