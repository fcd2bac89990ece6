"""Kernels that are put in with their launches."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.primitives.insert import NewKernel, insert_kernel, insert_kernels
from daceml.simulation.task import EdgeKind
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "launch_a cpu 2 gap 3",
    "a gpu0 20 with launch_a + 4",
    "launch_b cpu 2 gap 3",
    "b gpu0 20 with launch_b + 4",
    "sync cpu 1 after b",
)


def test_a_kernel_goes_between_two_with_a_launch_like_those_that_there_are():
    graph = insert_kernel(GRAPH, "mask", after=1, launch_after=0, duration_us=5)
    schedule = simulate(graph)
    assert schedule["launch of mask"] == (8, 10) and schedule["launch_b"] == (13, 15)
    assert schedule["a"] == (7, 27) and schedule["mask"] == (27, 32) and schedule["b"] == (32, 52)
    assert (graph.edges.kind == EdgeKind.LAUNCH).sum() == 3


def test_kernels_go_in_front_of_others_even_of_the_first():
    new = [
        NewKernel(name=f"new{k}", before=1, launch_before=0, duration_us=5, launch_us=1, launch_gap_us=0)
        for k in (0, 1)
    ]
    schedule = simulate(insert_kernels(GRAPH, new))
    assert schedule["launch of new1"] == (1, 2) and schedule["launch_a"] == (5, 7)
    assert schedule["new0"] == (4, 9) and schedule["new1"] == (9, 14) and schedule["a"] == (14, 34)


@pytest.mark.parametrize(
    ("after", "launch_after", "facts"),
    [(0, 0, ("'launch_a'", "'cpu'")), (1, 1, ("'a'", "'gpu0'")), (9, 0, ("9",))],
)
def test_a_place_on_a_lane_of_another_kind_is_refused(after: int, launch_after: int, facts: tuple[str, ...]):
    with raises(WhatIfError, "mask", *facts):
        insert_kernel(GRAPH, "mask", after=after, launch_after=launch_after, duration_us=5)
