"""Lanes that are not ordered: what runs next when several tasks are ready."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given

from daceml.errors import CyclicGraphError, WhatIfError
from daceml.simulation.engine import Ranked, SchedulingState, by_priority, first_ready, simulate
from daceml.simulation.engine.events import run_events
from daceml.simulation.graph import TaskGraph
from tests.simulation.random_graphs import task_graphs
from tests.support.golden import raises
from tests.support.task_stories import graph_of

LAYERS = (
    "backward2 gpu0 4",
    "backward1 gpu0 4",
    "send2 link~ 6 after backward2 priority 1",
    "send1 link~ 6 after backward1 priority 2",
    "send0 link~ 6 after backward1 priority 3",
)


def test_whatever_is_ready_first_goes_first():
    graph = graph_of("slow gpu0 5", "fast stream7 2", "a link~ 4 after slow", "b link~ 4 after fast")
    schedule = simulate(graph)
    assert schedule["b"] == (2, 6) and schedule["a"] == (6, 10)


def test_of_tasks_that_are_ready_together_the_first_of_the_graph_goes_first():
    schedule = simulate(graph_of("b link~ 3", "a link~ 2"))
    assert schedule["b"] == (0, 3) and schedule["a"] == (3, 5)


def test_the_highest_priority_goes_first_and_interrupts_nothing():
    schedule = simulate(graph_of(*LAYERS), by_priority)
    # Send 2 is alone at 4; at 10, when it ends, send 0 overtakes send 1.
    assert schedule["send2"] == (4, 10) and schedule["send0"] == (10, 16) and schedule["send1"] == (16, 22)
    assert simulate(graph_of(*LAYERS), first_ready)["send1"] == (10, 16)


def test_a_policy_of_ones_own_sees_what_is_ready_and_since_when():
    seen: list[tuple[float, str, list[str], float]] = []

    def shortest_last(ready: Sequence[int], state: SchedulingState) -> int:
        names = [state.graph.name_of(task) for task in ready]
        seen.append((state.now_us, state.graph.lanes[state.lane].name, names, state.ready_us[ready[0]]))
        return ready[-1]

    schedule = simulate(graph_of(*LAYERS), shortest_last)
    assert schedule["send0"] == (10, 16) and schedule["send1"] == (16, 22)
    assert seen == [
        (4, "link", ["send2"], 4),
        (10, "link", ["send1", "send0"], 8),
        (16, "link", ["send1"], 8),
    ]


def test_tasks_may_be_ranked_by_anything_known_beforehand():
    graph = graph_of("a link~ 1 bytes 9", "b link~ 1 bytes 4", "c link~ 1 bytes 4", "d link~ 1 bytes 1")
    smallest = Ranked(lambda graph: graph.tasks.size_bytes)
    assert simulate(graph, smallest).start_us.tolist() == [3, 1, 2, 0]
    assert simulate(graph, lambda ready, state: smallest(ready, state)).start_us.tolist() == [3, 1, 2, 0]


def test_a_policy_leaves_ordered_lanes_alone():
    graph = graph_of("a cpu 1 priority 0", "b cpu 1 priority 9")
    assert simulate(graph, by_priority)["a"] == (0, 1)


def test_a_task_of_a_free_lane_starts_no_earlier_than_its_gap():
    schedule = simulate(graph_of("a link~ 2 gap 7", "b link~ 3"))
    assert schedule["b"] == (0, 3) and schedule["a"] == (7, 9)


def test_what_a_free_lane_chose_delays_what_waits_for_it():
    graph = graph_of("a link~ 5", "b link~ 5", "step gpu0 1 after b", "again link~ 1 with step")
    schedule = simulate(graph)
    assert schedule["step"] == (10, 11) and schedule["again"] == (10, 11)
    assert schedule.before.tolist() == [-1, 0, -1, 1]


def test_a_choice_that_is_not_ready_is_refused():
    with raises(WhatIfError, "'b'", "link", "0.0 us", "'a'"):
        simulate(graph_of("a link~ 5", "b link~ 5 after a"), lambda ready, state: 1)


def test_a_cycle_over_a_free_lane_is_refused():
    with raises(CyclicGraphError, "2", "'a'", "'b'"):
        simulate(graph_of("a link~ 1 after b", "b cpu 1 after a"))


@given(task_graphs())
def test_without_free_lanes_it_is_a_replay(graph: TaskGraph):
    events, replay = run_events(graph, first_ready), simulate(graph)
    assert events.start_us.tobytes() == replay.start_us.tobytes()
    assert events.end_us.tobytes() == replay.end_us.tobytes()
    assert events.before.tolist() == replay.before.tolist()


@given(task_graphs(lanes=("cpu", "gpu0", "link~", "net~")))
def test_a_free_lane_runs_one_task_at_a_time_each_after_what_it_waits_for(graph: TaskGraph):
    schedule, edges = simulate(graph, by_priority), graph.edges
    since = np.where(edges.from_start, schedule.start_us[edges.source], schedule.end_us[edges.source])
    assert (schedule.start_us[edges.target] >= since + edges.lag_us).all()
    second = np.flatnonzero((schedule.before >= 0) & (graph.structure.before < 0))
    assert (schedule.start_us[second] >= schedule.end_us[schedule.before[second]]).all()
    position = np.argsort(schedule.order)
    assert (position[edges.source] < position[edges.target]).all()
