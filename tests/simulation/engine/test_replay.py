"""Replay: when tasks start on ordered lanes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from daceml.errors import CyclicGraphError, TaskGraphError
from daceml.simulation.compiled import Engine
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from tests.simulation.random_graphs import longest_paths, task_graphs
from tests.support.golden import raises
from tests.support.task_stories import graph_of

ENGINES: list[Engine] = ["python", "numba"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "numba":
        pytest.importorskip("numba", reason="numba is not installed: the loops are not compiled")
    return request.param


def test_streams_overlap_until_the_join(engine: Engine):
    graph = graph_of(
        "launch cpu 2",
        "gemm gpu0 10 after launch",
        "allreduce link 6 after launch",
        "step gpu0 1 after gemm allreduce",
    )
    schedule = simulate(graph, engine=engine)
    assert schedule["gemm"] == (2, 12) and schedule["allreduce"] == (2, 8) and schedule["step"] == (12, 13)
    assert schedule.makespan_us == 13 and schedule.busy_us.tolist() == [2, 11, 6]


def test_a_gap_counts_from_the_task_before_and_for_the_first_from_time_zero(engine: Engine):
    schedule = simulate(graph_of("a cpu 2 gap 5", "b cpu 1 gap 3"), engine=engine)
    assert schedule["a"] == (5, 7) and schedule["b"] == (10, 11)


def test_a_gap_below_zero_lets_tasks_of_a_lane_overlap_but_none_starts_before_time_zero(engine: Engine):
    schedule = simulate(graph_of("a gpu0 4 gap -3", "b gpu0 2 gap -1", "c gpu0 1 gap -9"), engine=engine)
    assert schedule["a"] == (0, 4) and schedule["b"] == (3, 5) and schedule["c"] == (0, 1)
    assert schedule.busy_us.tolist() == [5]


def test_an_edge_may_count_from_the_start_and_lag(engine: Engine):
    graph = graph_of("launch cpu 8", "early gpu0 1 with launch + 3", "late stream7 1 after launch + 2")
    schedule = simulate(graph, engine=engine)
    assert schedule["early"] == (3, 4) and schedule["late"] == (10, 11)


def test_tasks_may_be_told_before_those_that_they_wait_for(engine: Engine):
    schedule = simulate(graph_of("sync cpu 1 after gemm", "gemm gpu0 10"), engine=engine)
    assert schedule["sync"] == (10, 11)


def test_an_empty_graph_takes_no_time(engine: Engine):
    schedule = simulate(graph_of(), engine=engine)
    assert len(schedule) == 0 and schedule.makespan_us == 0


@given(task_graphs())
def test_a_replay_gives_the_longest_paths(graph: TaskGraph):
    start, end = longest_paths(graph)
    schedule = simulate(graph, engine="python")
    assert schedule.start_us.tolist() == start.tolist() and schedule.end_us.tolist() == end.tolist()


@given(task_graphs())
def test_both_engines_give_the_same_bits(graph: TaskGraph):
    pytest.importorskip("numba", reason="numba is not installed: the loops are not compiled")
    # Thirds are no sums of powers of two, so another order of additions would show.
    graph = graph.with_times(duration_us=graph.tasks.duration_us / 3, lag_us=graph.edges.lag_us / 7)
    python, numba = (simulate(graph, engine=engine) for engine in ENGINES)
    assert python.start_us.tobytes() == numba.start_us.tobytes()
    assert python.end_us.tobytes() == numba.end_us.tobytes()


@given(task_graphs())
def test_a_replay_of_what_a_replay_gave_is_that_again(graph: TaskGraph):
    first = simulate(graph)
    before = graph.structure.before
    idle_us = first.start_us - np.where(before >= 0, first.end_us[before], 0.0)
    again = simulate(graph.with_times(gap_us=idle_us))
    assert again.start_us.tolist() == first.start_us.tolist()


def test_a_cycle_is_refused_and_named():
    graph = graph_of("free cpu 1", "a cpu 1 after c", "b gpu0 1 after a", "c gpu0 1", "later cpu 1 after c")
    with raises(CyclicGraphError, "3") as caught:
        simulate(graph)
    assert caught.value.why == "'b' (gpu0) -> 'c' (gpu0) -> 'a' (cpu) -> 'b' (gpu0)"


def test_of_a_long_cycle_five_tasks_are_named():
    graph = graph_of("a cpu 1 after h", *(f"{name} cpu 1" for name in "bcdefgh"))
    with raises(CyclicGraphError, "8") as caught:
        simulate(graph)
    first, *_, more, last = caught.value.why.split(" -> ")
    assert first == last and "3" in more
    assert caught.value.why.count(" (cpu)") == 6


def test_a_task_that_waits_for_itself_is_refused():
    with raises(CyclicGraphError, "'a'"):
        simulate(graph_of("a cpu 1 after a"))


def test_a_name_that_no_task_or_several_have_is_refused():
    schedule = simulate(graph_of("gemm gpu0 1", "gemm gpu0 1", "step cpu 1"))
    with raises(TaskGraphError, "'gem'", "'gemm'"):
        schedule["gem"]
    with raises(TaskGraphError, "2", "'gemm'"):
        schedule["gemm"]


def test_small_graphs_do_without_numba_and_the_package_without_anything_but_numpy():
    code = (
        "import sys, daceml.simulation.engine\n"
        "from tests.support.task_stories import graph_of\n"
        "daceml.simulation.engine.simulate(graph_of('a cpu 1'))\n"
        "print(sorted({'numba', 'scipy', 'torch', 'dace', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
