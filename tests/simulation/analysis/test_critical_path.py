"""The chain that decides the makespan, and the slack of everything else."""

from __future__ import annotations

import math

from hypothesis import given

from daceml.simulation.analysis.critical_path import CriticalPath, critical_path, slack_us
from daceml.simulation.engine import by_priority, simulate
from daceml.simulation.graph import TaskGraph
from tests.simulation.random_graphs import longest_paths, task_graphs
from tests.support.task_stories import graph_of


def told(path: CriticalPath) -> list[tuple[float, float, str, str]]:
    name_of = path.schedule.graph.name_of
    return [(part.start_us, part.end_us, name_of(part.task), path.spent_on(part)) for part in path.segments]


def test_the_path_is_the_slower_branch():
    schedule = simulate(
        graph_of(
            "launch cpu 2",
            "gemm gpu0 10 after launch",
            "allreduce link 6 after launch",
            "step gpu0 1 after gemm allreduce",
        )
    )
    assert told(critical_path(schedule)) == [
        (0, 2, "launch", "call"),
        (2, 12, "gemm", "kernel"),
        (12, 13, "step", "kernel"),
    ]
    assert slack_us(schedule).tolist() == [0, 0, 4, 0]


def test_waits_are_stretches_of_their_own():
    schedule = simulate(
        graph_of(
            "load cpu 4 gap 3", "call cpu 2 gap 1", "gemm gpu0 5 after call + 6", "sync cpu 1 after gemm"
        )
    )
    assert told(critical_path(schedule)) == [
        (0, 3, "load", "release"),
        (3, 7, "load", "call"),
        (7, 8, "call", "gap"),
        (8, 10, "call", "call"),
        (10, 16, "gemm", "launch lag"),
        (16, 21, "gemm", "kernel"),
        (21, 22, "sync", "call"),
    ]


def test_of_a_launch_whose_start_counts_only_the_lag_is_on_the_path():
    schedule = simulate(graph_of("prepare cpu 1", "launch cpu 8", "gemm gpu0 9 with launch + 3"))
    assert told(critical_path(schedule)) == [
        (0, 1, "prepare", "call"),
        (1, 4, "gemm", "launch lag"),
        (4, 13, "gemm", "kernel"),
    ]


def test_a_path_leaves_a_kernel_where_the_next_one_overlaps_it():
    schedule = simulate(graph_of("a gpu0 5", "b gpu0 5 gap -2"))
    assert told(critical_path(schedule)) == [(0, 3, "a", "kernel"), (3, 8, "b", "kernel")]


def test_where_lane_and_edge_bind_at_once_the_path_follows_the_lane_and_then_the_first_edge():
    schedule = simulate(
        graph_of("a gpu0 5", "b stream7 5", "c link 5", "d gpu0 1 after c b", "e cpu 1 after c b")
    )
    path = critical_path(schedule)
    assert path.tasks == (0, 3)  # d ends together with e, and comes first
    assert slack_us(schedule).tolist() == [0, 0, 0, 0, 0]
    other = simulate(graph_of("b stream7 5", "c link 5", "e cpu 1 after c b"))
    assert critical_path(other).tasks == (1, 2) and critical_path(other).segments[-1].edge == 0


def test_the_path_follows_what_a_free_lane_chose():
    schedule = simulate(graph_of("a link~ 4", "b link~ 3 priority 2", "step gpu0 1 after a"), by_priority)
    assert told(critical_path(schedule)) == [
        (0, 3, "b", "collective"),
        (3, 7, "a", "collective"),
        (7, 8, "step", "kernel"),
    ]
    assert slack_us(schedule).tolist() == [0, 0, 0]


def test_of_nothing_there_is_no_path():
    path = critical_path(simulate(graph_of()))
    assert path.segments == () and path.length_us == 0


@given(task_graphs(lanes=("cpu", "gpu0", "link~")))
def test_the_path_goes_from_zero_to_the_makespan_without_holes(graph: TaskGraph):
    schedule = simulate(graph)
    path = critical_path(schedule)
    assert path.segments[0].start_us == 0 and path.segments[-1].end_us == schedule.makespan_us
    assert all(a.end_us == b.start_us for a, b in zip(path.segments, path.segments[1:], strict=False))
    assert math.fsum(part.duration_us for part in path.segments) == schedule.makespan_us == path.length_us
    assert all(slack_us(schedule)[task] == 0 for task in path.tasks)


@given(task_graphs())
def test_a_task_may_start_later_by_its_slack_and_no_more(graph: TaskGraph):
    schedule = simulate(graph)
    for task, slack in enumerate(slack_us(schedule).tolist()):
        assert slack >= 0
        assert longest_paths(graph, {task: slack})[1].max() == schedule.makespan_us
        assert longest_paths(graph, {task: slack + 0.25})[1].max() > schedule.makespan_us
