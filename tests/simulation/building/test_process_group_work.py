"""Gloo's work on threads of its own: who asked for it, and who waited for it."""

from __future__ import annotations

from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate
from daceml.simulation.task import EdgeKind, TaskKind
from tests.support.recorded_calls import with_duration
from tests.support.recorded_ranks import RankRecording


def recorded() -> RankRecording:
    """Backward asks for an all-reduce, computes on, and waits for it before the optimizer's step."""
    recording = RankRecording(0)
    recording.operator("aten::mm", 0, 10)
    recording.gloo("all_reduce", 10, 15, 85)
    recording.operator("aten::mm_backward", 12, 28)
    recording.operator("aten::add_", 103, 7)
    return recording


def test_work_is_a_collective_on_a_channel_that_its_operator_launches():
    graph = build(recorded().trace())
    (work,) = [task for task in graph if graph.tasks.kind[task] == TaskKind.COLLECTIVE]
    lane = graph.lanes[graph.tasks.lane[work]]
    assert (lane.kind, lane.name) == ("channel", "channel of thread 200")
    (into,) = [edge for edge in range(len(graph.edges)) if graph.edges.target[edge] == work]
    assert graph.name_of(int(graph.edges.source[into])) == "c10d::allreduce_"
    assert graph.edges.kind[into] == EdgeKind.LAUNCH


def test_a_replay_is_what_was_recorded():
    schedule = simulate(build(recorded().trace()))
    assert schedule["gloo:all_reduce"] == (15, 100)
    assert schedule["aten::add_"] == (103, 110)


def test_who_waited_waits_as_long_as_the_work_takes():
    graph = build(recorded().trace())
    assert with_duration(graph, "gloo:all_reduce", 185)["aten::add_"] == (203, 210)
    # once the work is faster than what runs meanwhile, that decides
    assert with_duration(graph, "gloo:all_reduce", 1)["aten::add_"] == (40, 47)


def test_a_thread_that_was_busy_did_not_wait():
    recording = RankRecording(0)
    recording.gloo("all_reduce", 0, 5, 20)
    recording.operator("aten::mm", 2, 50)
    recording.operator("aten::add_", 60, 7)
    graph = build(recording.trace())
    assert with_duration(graph, "gloo:all_reduce", 500)["aten::add_"] == (60, 67)
