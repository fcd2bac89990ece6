"""Simulating again after times changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.errors import TaskGraphError
from daceml.simulation.compiled import Engine
from daceml.simulation.engine import by_priority, resimulate, simulate
from daceml.simulation.graph import TaskGraph
from tests.simulation.random_graphs import LAGS, QUARTERS, task_graphs
from tests.support.golden import raises
from tests.support.task_stories import graph_of


def test_a_faster_kernel_shifts_what_waits_for_it_and_nothing_else():
    sentences = [
        "launch cpu 2",
        "gemm gpu0 10 after launch",
        "copy stream7 3 after launch",
        "step gpu0 1 after copy",
    ]
    before = simulate(graph_of(*sentences))
    sentences[1] = "gemm gpu0 5 after launch"
    after = resimulate(before, graph_of(*sentences))
    assert before["step"] == (12, 13) and after["step"] == (7, 8)
    assert after["copy"] == before["copy"] == (2, 5)


def test_whoever_knows_what_changed_need_not_have_it_looked_for():
    graph = graph_of("a cpu 1", "b cpu 2", "c gpu0 3 after b")
    schedule = simulate(graph)
    other = graph.with_times(duration_us=np.array([1.0, 4.0, 3.0]))
    assert resimulate(schedule, other, changed=np.array([1]))["c"] == (5, 8)
    assert resimulate(schedule, other, changed=np.array([], np.int64))["c"] == (3, 6), (
        "then it is not looked at"
    )


def test_a_schedule_that_is_simulated_again_is_left_as_it_was():
    graph = graph_of("a cpu 2", "b cpu 1")
    schedule = simulate(graph)
    resimulate(schedule, graph.with_times(duration_us=np.array([5.0, 1.0])))
    assert schedule["b"] == (2, 3)


@pytest.mark.parametrize("engine", ["python", "numba"])
@given(graph=task_graphs(), data=st.data())
def test_it_gives_the_bits_of_a_full_simulation(graph: TaskGraph, data: st.DataObject, engine: Engine):
    if engine == "numba":
        pytest.importorskip("numba", reason="numba is not installed: the loops are not compiled")

    def changed(column: np.ndarray, values: st.SearchStrategy[float]) -> np.ndarray:
        column = column.copy()
        for place in data.draw(st.lists(st.integers(0, len(column) - 1), max_size=3)) if len(column) else []:
            column[place] = data.draw(values) / 3
        return column

    other = graph.with_times(
        duration_us=changed(graph.tasks.duration_us, QUARTERS),
        gap_us=changed(graph.tasks.gap_us, LAGS),
        lag_us=changed(graph.edges.lag_us, LAGS),
    )
    again, full = resimulate(simulate(graph), other, engine=engine), simulate(other)
    assert again.start_us.tobytes() == full.start_us.tobytes()
    assert again.end_us.tobytes() == full.end_us.tobytes()


@pytest.mark.parametrize("engine", ["python", "numba"])
def test_a_change_spreads_over_a_lane_much_longer_than_a_block(engine: Engine):
    if engine == "numba":
        pytest.importorskip("numba", reason="numba is not installed: the loops are not compiled")
    graph = graph_of(
        *(f"k{number} gpu0 2" for number in range(1000)), "late cpu 1 gap 5000", "end gpu0 1 after late"
    )
    duration_us = graph.tasks.duration_us.copy()
    duration_us[130] = 7
    again = resimulate(simulate(graph), graph.with_times(duration_us=duration_us), engine=engine)
    assert again["k130"] == (260, 267) and again["k999"] == (2003, 2005) and again["end"] == (5001, 5002)


def test_where_a_lane_is_free_the_same_policy_decides_again():
    sentences = ["a gpu0 4", "x link~ 3 after a", "y link~ 2 priority 2 gap 5", "z link~ 9 gap 5"]
    schedule = simulate(graph_of(*sentences), by_priority)
    assert schedule["x"] == (4, 7) and schedule["y"] == (7, 9) and schedule["z"] == (9, 18)
    sentences[0] = "a gpu0 6"
    again = resimulate(schedule, graph_of(*sentences))
    assert again["y"] == (5, 7) and again["z"] == (7, 16) and again["x"] == (16, 19)


@pytest.mark.parametrize(
    "other",
    [
        ("a cpu 1", "b gpu0 1 after a", "c gpu0 1"),
        ("a cpu 1", "b gpu0 1 after a a"),
        ("a cpu 1", "b gpu0 1"),
        ("a cpu 1", "b gpu0~ 1 after a"),
    ],
    ids=["another task", "another edge", "no edge", "no order"],
)
def test_a_graph_with_other_tasks_or_dependencies_is_refused(other: tuple[str, ...]):
    schedule = simulate(graph_of("a cpu 1", "b gpu0 1 after a"))
    with raises(TaskGraphError, "simulate(graph)"):
        resimulate(schedule, graph_of(*other))
