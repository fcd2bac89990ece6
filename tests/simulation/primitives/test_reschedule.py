"""Another order of the same tasks."""

from __future__ import annotations

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.engine import by_priority, simulate
from daceml.simulation.primitives.reschedule import reordered, unordered, with_priority
from daceml.simulation.primitives.select import select
from tests.support.golden import raises
from tests.support.task_stories import graph_of

GRAPH = graph_of("back gpu0 4", "big link 20 gap 4", "small link 2", "fore gpu0 3 after small")


def test_on_a_lane_that_is_free_the_urgent_task_goes_first():
    free = unordered(GRAPH, 1)
    assert simulate(free)["small"] == (20, 22)
    urgent = with_priority(free, select(free, name="small"), 5)
    schedule = simulate(urgent, by_priority)
    assert schedule["small"] == (0, 2) and schedule["fore"] == (4, 7) and schedule["big"] == (2, 22)


def test_some_tasks_of_a_free_lane_may_keep_their_order_and_gaps():
    graph = graph_of("a gpu0 1", "b gpu0 1 gap 3", "c gpu0 1")
    free = with_priority(
        unordered(graph, 0, keep_order=select(graph, name="a|b")), select(graph), np.array([0, 9, 1.0])
    )
    schedule = simulate(free, by_priority)
    assert schedule["c"] == (0, 1) and schedule["a"] == (1, 2) and schedule["b"] == (5, 6)


def test_tasks_run_in_the_order_that_is_given_and_the_lane_begins_as_before():
    graph = graph_of("a gpu0 1 gap 100", "b gpu0 2 gap 3", "c gpu0 4", "d gpu1 1 after a")
    schedule = simulate(reordered(graph, [2, 1, 0]))
    assert schedule["c"] == (100, 104) and schedule["b"] == (107, 109) and schedule["a"] == (109, 110)
    assert schedule["d"] == (110, 111)


def test_what_cannot_be_ordered_is_refused():
    for tasks in ([1, 1], [0, 1]):
        with raises(WhatIfError):
            reordered(GRAPH, tasks)
    with raises(WhatIfError, "lane 4"):
        unordered(GRAPH, 4)
    with raises(WhatIfError, "2", "4"):
        with_priority(GRAPH, select(GRAPH), np.ones(2))
