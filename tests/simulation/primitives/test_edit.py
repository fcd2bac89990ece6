"""Taking tasks out of a graph and putting tasks in."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import TaskGraphError
from daceml.simulation.engine import simulate
from daceml.simulation.primitives.edit import FIRST, NewTask, with_tasks, without
from daceml.simulation.primitives.select import select
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind
from tests.support.golden import raises
from tests.support.task_stories import graph_of


def test_a_task_that_is_gone_takes_its_gap_along():
    graph = graph_of("a cpu 2", "b cpu 3 gap 1", "c cpu 4 gap 5")
    schedule = simulate(without(graph, select(graph, name="b")))
    assert schedule["a"] == (0, 2) and schedule["c"] == (7, 11)


def test_the_gap_of_a_task_that_is_gone_may_stay():
    graph = graph_of("a cpu 2", "b cpu 3 gap 1", "c cpu 4 gap 5")
    assert simulate(without(graph, select(graph, name="b"), keep_gaps=True))["c"] == (8, 12)


def test_a_kernel_that_ended_before_the_one_before_it_does_not_delay_the_next_one():
    graph = graph_of("a gpu0 100", "b gpu0 1 gap -5", "c gpu0 10 gap -1")
    assert simulate(graph)["b"] == (95, 96) and simulate(graph)["c"] == (95, 105)
    assert simulate(without(graph, graph.where_name(lambda name: name == "b")))["c"] == (95, 105)
    assert simulate(without(graph, graph.where_name(lambda name: name == "a")))["c"][0] <= 95


def test_a_lane_still_begins_when_it_began():
    graph = graph_of("wake cpu 2 gap 100", "work cpu 3 gap 1")
    assert simulate(without(graph, select(graph, name="wake")))["work"] == (100, 103)


def test_who_waited_for_a_removed_task_waits_for_what_stood_before_it():
    graph = graph_of("gemm gpu0 10", "relu gpu0 5", "sum gpu1 2 after relu")
    assert simulate(without(graph, select(graph, name="relu")))["sum"] == (10, 12)


def test_what_a_removed_task_waited_for_holds_back_the_next_one():
    graph = graph_of("batch cpu1 30", "a cpu0 1", "wait cpu0 1 after batch", "b cpu0 1")
    assert simulate(without(graph, select(graph, name="wait")))["b"] == (30, 31)


def test_a_dependency_leads_through_a_removed_task_of_a_lane_without_order():
    graph = graph_of("grad gpu0 10", "reduce link~ 6 after grad", "update gpu1 1 after reduce")
    assert simulate(without(graph, select(graph, name="reduce")))["update"] == (10, 11)


def test_a_call_that_is_gone_does_not_wait_for_the_device():
    graph = graph_of("launch cpu 2", "gemm gpu0 10 after launch", "sync cpu 1 after gemm", "next cpu 1")
    assert simulate(without(graph, select(graph, name="sync")))["next"] == (2, 3)


def test_an_explicit_edge_along_a_lane_stays():
    graph = graph_of("a gpu0 1", "b gpu0 1 after a + 5", "c gpu0 1")
    assert simulate(without(graph, select(graph, name="c")))["b"] == (6, 7)


def test_a_mask_of_another_graph_is_refused():
    with raises(TaskGraphError, "(2,)"):
        without(graph_of("a cpu 1"), np.ones(2, np.bool_))


def test_new_tasks_stand_where_they_are_told():
    graph = graph_of("a cpu 2 layer fc phase backward", "b cpu 3")
    edited = with_tasks(
        graph,
        [
            NewTask(name="last", kind=TaskKind.CALL, lane=0, duration_us=1),
            NewTask(name="second", kind=TaskKind.CALL, lane=0, duration_us=1, after=0, like=0),
            NewTask(name="first", kind=TaskKind.CALL, lane=0, duration_us=1, after=FIRST),
            NewTask(name="sum", kind=TaskKind.COLLECTIVE, lane=1, duration_us=5, priority=2),
        ],
        [(0, ~3, 1.0, False, EdgeKind.CHANNEL), (~3, 1, 0.0, False, EdgeKind.CHANNEL)],
        lanes=[Lane(kind="channel", name="net")],
    )
    schedule = simulate(edited)
    assert [edited.name_of(task) for task in edited] == ["first", "a", "second", "b", "last", "sum"]
    assert schedule["a"] == (1, 3) and schedule["sum"] == (4, 9) and schedule["b"] == (9, 12)
    second = [edited.name_of(task) for task in edited].index("second")
    assert edited.layer_of(second) == "fc" and edited.tasks.phase[second] == Phase.BACKWARD
    assert len(set(edited.tasks.key.tolist())) == 6 and len(graph) == 2


@pytest.mark.parametrize(
    ("task", "facts"),
    [
        (NewTask(name="x", kind=TaskKind.CALL, lane=3, duration_us=1), ("lane 3",)),
        (NewTask(name="x", kind=TaskKind.CALL, lane=0, duration_us=1, after=9), ("task 9",)),
        (NewTask(name="x", kind=TaskKind.CALL, lane=0, duration_us=1, after=1), ("'k'", "'gpu0'")),
        (NewTask(name="x", kind=TaskKind.CALL, lane=0, duration_us=1, like=7), ("task 7",)),
        (NewTask(name="x", kind=TaskKind.CALL, lane=0, duration_us=-1), ("-1.0 us",)),
    ],
)
def test_a_new_task_that_has_no_place_is_refused(task: NewTask, facts: tuple[str, ...]):
    with raises(TaskGraphError, "'x'", *facts):
        with_tasks(graph_of("a cpu 1", "k gpu0 1"), [task])


def test_a_new_edge_to_nowhere_is_refused():
    with raises(TaskGraphError, "task 5"):
        with_tasks(graph_of("a cpu 1"), [], [(0, 5, 0.0, False, EdgeKind.USER)])
