"""Tasks that go with the calls that launched them."""

from __future__ import annotations

from daceml.simulation.engine import simulate
from daceml.simulation.primitives.remove import remove
from daceml.simulation.primitives.select import select
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "launch_a cpu 2",
    "a gpu0 10 after launch_a",
    "launch_b cpu 2 gap 3",
    "b gpu0 10 after launch_b",
    "launch_c cpu 2 gap 3",
    "c gpu0 10 after launch_c",
)


def test_a_kernel_goes_with_its_launch_and_the_time_that_prepared_it():
    schedule = simulate(remove(GRAPH, select(GRAPH, name="^b$")))
    assert schedule["launch_c"] == (5, 7) and schedule["c"] == (12, 22) and len(schedule) == 4


def test_the_time_that_prepared_it_may_stay():
    assert simulate(remove(GRAPH, select(GRAPH, name="^b$"), keep_gaps=True))["launch_c"] == (8, 10)


def test_the_launch_may_stay():
    schedule = simulate(remove(GRAPH, select(GRAPH, name="^b$"), with_launch=False))
    assert schedule["launch_b"] == (5, 7) and schedule["c"] == (12, 22)
