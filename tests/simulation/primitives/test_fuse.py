"""Several tasks become one, launched once."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.graph import NOTHING
from daceml.simulation.primitives.edit import with_tasks
from daceml.simulation.primitives.fuse import cut_where_awaited, fuse, fuse_groups
from daceml.simulation.primitives.select import select
from daceml.simulation.task import EdgeKind
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "l1 cpu 2",
    "mul gpu0 4 with l1 + 3",
    "l2 cpu 2 gap 10",
    "add gpu0 6 with l2 + 3",
    "l3 cpu 2 gap 10",
    "sqrt gpu0 2 with l3 + 3",
    "l4 cpu 2 gap 10",
    "gemm gpu0 20 with l4 + 3",
    "sum gpu1 5 after mul",
)


def test_the_whole_stands_where_the_last_part_stood_and_keeps_one_launch():
    graph = fuse(GRAPH, select(GRAPH, name="mul|add|sqrt"))
    schedule = simulate(graph)
    assert schedule["l3"] == (0, 2) and schedule["fused 3: sqrt"] == (3, 15)
    assert schedule["l4"] == (12, 14) and schedule["gemm"] == (15, 35)
    assert (graph.edges.kind == EdgeKind.LAUNCH).sum() == 2


def test_who_waited_for_a_part_waits_for_the_whole():
    schedule = simulate(fuse(GRAPH, select(GRAPH, name="mul|add"), duration_us=7, name="mul+add"))
    assert schedule["mul+add"] == (3, 10) and schedule["sum"] == (10, 15)


def test_the_whole_waits_for_what_any_part_waited_for():
    graph = graph_of("data gpu1 30", "a gpu0 1 after data", "b gpu0 1", "c gpu0 1")
    assert simulate(fuse(graph, select(graph, name="^[ab]$")))["fused 2: b"] == (30, 32)


def test_a_launch_that_waited_for_room_behind_a_part_does_not_wait_for_the_whole():
    graph = graph_of("l1 cpu 1", "a gpu0 9 after l1", "l2 cpu 1", "b gpu0 9 after l2")
    graph.edges.kind[:] = EdgeKind.LAUNCH
    full = with_tasks(graph, [], [(1, 2, 0.0, True, EdgeKind.QUEUE)])
    assert simulate(full)["l2"] == (1, 2)
    assert simulate(fuse(full, select(full, lane="gpu")))["fused 2: b"] == (1, 19)


def test_groups_are_fused_each_on_its_own():
    group = np.full(len(GRAPH), NOTHING)
    group[[1, 3]], group[[5, 7]] = 0, 1
    schedule = simulate(fuse_groups(GRAPH, group, np.array([8.0, 21.0])))
    assert schedule["fused 2: add"] == (3, 11) and schedule["fused 2: gemm"] == (15, 36)


def test_operators_of_a_thread_are_fused_and_what_lay_between_them_goes():
    graph = graph_of(*(f"op{k} cpu 5 gap 7 kind operator" for k in range(3)), "next cpu 1")
    schedule = simulate(fuse(graph, select(graph, name="op"), duration_us=6, name="fused"))
    assert schedule["fused"] == (7, 13) and schedule["next"] == (13, 14)


@pytest.mark.parametrize(
    ("name", "facts"), [("nobody", ()), ("mul|sum", ("'mul'", "'gpu0'", "'gpu1'")), ("free", ("'link'",))]
)
def test_what_is_no_run_of_one_lane_is_refused(name: str, facts: tuple[str, ...]):
    graph = graph_of("mul gpu0 1", "sum gpu1 1", "free1 link~ 1", "free2 link~ 1")
    with raises(WhatIfError, *facts):
        fuse(graph, select(graph, name=name))


def test_a_duration_below_zero_is_refused():
    with raises(WhatIfError):
        fuse(GRAPH, select(GRAPH, name="mul|add"), duration_us=-1)


def test_tasks_that_wait_for_each_other_through_another_lane_are_refused_or_cut():
    graph = graph_of("a gpu0 1", "sum gpu1 1 after a", "b gpu0 1 after sum", "c gpu0 1")
    mask = select(graph, lane="gpu0")
    with raises(WhatIfError, "'sum' (gpu1)"):
        fuse(graph, mask)
    group = cut_where_awaited(graph, np.where(mask, 0, NOTHING))
    assert group[mask].tolist() == [0, 1, 1]
    assert simulate(fuse_groups(graph, group, np.array([1.0, 2.0])))["fused 2: c"] == (2, 4)
