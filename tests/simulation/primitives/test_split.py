"""One task becomes several parts."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.primitives.split import split
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of("l cpu 2 gap 1", "gemm gpu0 12 with l + 4 bytes 600", "relu gpu0 3", "sum gpu1 5 after gemm")


def test_parts_share_the_time_and_who_waited_waits_for_the_last():
    graph = split(GRAPH, 1, 3)
    schedule = simulate(graph)
    assert schedule["gemm [1/3]"] == (5, 9) and schedule["gemm [3/3]"] == (13, 17)
    assert schedule["relu"] == (17, 20) and schedule["sum"] == (17, 22)
    assert graph.tasks.size_bytes[1:4].tolist() == [200, 200, 200]


def test_parts_may_be_unequal_and_stand_apart():
    schedule = simulate(split(GRAPH, 1, (1, 3), gap_us=2))
    assert schedule["gemm [1/2]"] == (5, 8) and schedule["gemm [2/2]"] == (10, 19)


def test_every_part_may_have_its_own_launch():
    schedule = simulate(split(GRAPH, 1, 2, with_launches=True))
    assert schedule.start_us[[0, 1]].tolist() == [1, 4] and schedule["gemm [2/2]"] == (11, 17)


def test_parts_of_a_lane_without_order_are_free_of_each_other():
    graph = graph_of("grad gpu0 10", "sum link~ 8 after grad", "step gpu0 1 after sum")
    schedule = simulate(split(graph, 1, 2))
    assert schedule["sum [1/2]"] == (10, 14) and schedule["sum [2/2]"] == (14, 18)
    assert schedule["step"] == (18, 19)


@pytest.mark.parametrize("parts", [1, 0, (1.0,), (1.0, 0.0), (1.0, float("nan"))])
def test_shares_that_mean_nothing_are_refused(parts: int | tuple[float, ...]):
    with raises(WhatIfError, "'gemm'", parts):
        split(GRAPH, 1, parts)


def test_a_launch_that_is_unknown_cannot_be_repeated():
    with raises(WhatIfError, f"'{GRAPH.name_of(2)}'"):
        split(GRAPH, 2, 2, with_launches=True)
