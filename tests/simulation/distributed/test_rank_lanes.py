"""Graphs of several ranks beside each other."""

from __future__ import annotations

import pytest

from daceml.simulation.distributed.rank_lanes import NO_RANK, moved, side_by_side, task_ranks
from daceml.simulation.engine import simulate
from tests.support.task_stories import graph_of

RANK = ("launch cpu 2 gap 5", "gemm gpu0 10 after launch step 0", "next gpu0 1")


def test_nobody_waits_for_another_rank():
    both = side_by_side([(0, graph_of(*RANK)), (3, graph_of(*RANK))])
    assert [lane.name for lane in both.lanes] == ["rank 0 cpu", "rank 0 gpu0", "rank 3 cpu", "rank 3 gpu0"]
    assert [lane.device for lane in both.lanes] == [None, 0, None, 1]
    assert task_ranks(both).tolist() == [0, 0, 0, 3, 3, 3]
    assert len(both.names) == 3 and both.step_names == ("step 0",)
    assert simulate(both).start_us.tolist() == [5, 7, 17] * 2


def test_lanes_without_a_rank_are_the_networks():
    graph = graph_of("send link 5")
    assert task_ranks(graph).tolist() == [NO_RANK]


def test_a_rank_that_begins_later_and_whose_clock_is_slow():
    later = moved(graph_of("launch cpu 100 gap 50 at 50", "gemm gpu0 10 after launch"), 1000, 1e4)
    schedule = simulate(later)
    assert schedule["launch"] == pytest.approx((1050.5, 1151.5))
    assert schedule["gemm"] == pytest.approx((1151.5, 1161.6))
    assert later.tasks.recorded_us[0] == pytest.approx(1050.5)
