"""Tasks go to another lane."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.primitives.edit import FIRST
from daceml.simulation.primitives.move import move
from daceml.simulation.primitives.select import select
from daceml.simulation.task import Lane
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "launch cpu 2",
    "gemm gpu0 10 after launch",
    "copy gpu0 6 gap 1 kind copy after launch",
    "relu gpu0 3",
    "mean gpu0 2",
)
SIDE = Lane(kind="stream", name="gpu 0 stream 20", device=0)


def test_a_copy_on_a_stream_of_its_own_runs_beside_the_kernels():
    schedule = simulate(move(GRAPH, select(GRAPH, name="copy"), SIDE))
    assert schedule["copy"] == (2, 8) and schedule["gemm"] == (2, 12) and schedule["relu"] == (12, 15)


def test_it_may_still_wait_for_what_stood_before_it():
    schedule = simulate(move(GRAPH, select(GRAPH, name="copy"), SIDE, wait_before=True))
    assert schedule["copy"] == (12, 18) and schedule["relu"] == (12, 15)


def test_what_stood_behind_may_still_wait_for_it():
    schedule = simulate(move(GRAPH, select(GRAPH, name="copy|relu"), SIDE, wait_before=True, wait_after=True))
    assert schedule["copy"] == (12, 18) and schedule["relu"] == (18, 21) and schedule["mean"] == (21, 23)


def test_tasks_go_behind_one_of_a_lane_that_exists():
    graph = graph_of("a gpu0 5", "b gpu0 5", "x gpu1 1", "y gpu1 1")
    for after, times in ((None, (2, 7)), (2, (1, 6)), (FIRST, (0, 5))):
        assert simulate(move(graph, select(graph, name="^b"), 1, after=after))["b"] == times


def test_tasks_of_several_lanes_go_in_the_order_in_which_they_began():
    graph = graph_of("a gpu0 5 at 0", "b gpu0 5 at 9", "x gpu1 1 at 4")
    assert simulate(move(graph, select(graph), SIDE))["x"] == (5, 6)


def test_an_order_that_nobody_knows_is_refused():
    graph = graph_of("a gpu0 5", "x gpu1 1")
    with raises(WhatIfError, "2", f"'{SIDE.name}'"):
        move(graph, select(graph), SIDE)


@pytest.mark.parametrize(
    ("lane", "after", "fact"),
    [
        (7, None, "lane 7"),
        (Lane(kind="stream", name="gpu0"), None, "'gpu0'"),
        (1, 2, "task 2"),
        (1, 0, "task 0"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(lane: int | Lane, after: int | None, fact: str):
    with raises(WhatIfError, fact):
        move(GRAPH, select(GRAPH, name="copy"), lane, after=after)


def test_nothing_cannot_be_moved():
    with raises(WhatIfError):
        move(GRAPH, np.zeros(len(GRAPH), np.bool_), SIDE)
