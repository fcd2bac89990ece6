from __future__ import annotations

from daceml.simulation.task import EdgeKind
from tests.support.recorded_calls import Recording, with_duration

MAIN, AUTOGRAD = 100, 200


def forward_backward_step() -> Recording:
    run = Recording()
    run.call("forward", 0, 50, ("gemm", 7, 8, 10))
    for number in range(3):
        run.call(f"backward {number}", 400 + 300 * number, 200, thread=AUTOGRAD)
    run.call("optimizer", 1300, 20)
    return run


def test_backward_of_another_thread_is_no_gap_of_the_caller():
    graph = forward_backward_step().graph()
    schedule = with_duration(graph, "backward 1", 50)
    assert schedule["backward 2"] == (850, 1050)
    assert schedule["optimizer"] == (1150, 1170)


def test_what_comes_before_moves_the_other_thread_as_well():
    schedule = with_duration(forward_backward_step().graph(), "forward", 10)
    assert schedule["backward 0"] == (360, 560)
    assert schedule["optimizer"] == (1260, 1280)


def test_a_thread_that_was_at_work_all_along_was_woken_by_nobody():
    run = Recording()
    run.call("main 0", 0, 50, ("gemm", 7, 8, 10))
    run.call("main 1", 1000, 50)
    for number in range(12):
        run.call(f"worker {number}", 100 * number + 3, 90, thread=AUTOGRAD)
    assert not (run.graph().edges.kind == EdgeKind.HANDOVER).any()
