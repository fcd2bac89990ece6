"""Ranks that wait for each other: a collective begins when its last member arrives."""

from __future__ import annotations

import dataclasses

import numpy as np

from daceml.errors import GlobalGraphError
from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.distributed.clocks.alignment import Alignment, unaligned
from daceml.simulation.distributed.global_graph import coarse_graph, global_graph
from daceml.simulation.distributed.matching import MatchedRun
from daceml.simulation.distributed.rank_lanes import task_ranks
from daceml.simulation.engine import resimulate, simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.select import select
from daceml.simulation.task import EdgeKind, TaskKind
from tests.simulation.distributed.waiting_ranks import run, slower, two_groups
from tests.support.golden import raises
from tests.support.recorded_ranks import RankRecording, run_of


def times(graph: TaskGraph, name: str) -> list[tuple[float, float]]:
    """Start and end of the tasks of this name, rank after rank."""
    schedule = simulate(graph)
    rows = np.flatnonzero(graph.where_name(lambda known: known == name))
    return [(float(schedule.start_us[row]), float(schedule.end_us[row])) for row in rows]


def test_a_replay_is_what_was_recorded():
    graph = global_graph(run(), unaligned(2))
    assert times(graph, "In all-reduce world #0") == [(60, 60), (100, 100)]
    assert times(graph, "all-reduce world #0") == [(100, 120)]
    assert times(graph, "Out all-reduce world #0") == [(120, 120), (120, 120)]
    assert times(graph, "norm") == [(120, 125), (120, 125)]


def test_who_is_late_makes_all_others_wait():
    graph = global_graph(run(), unaligned(2))
    assert times(slower(graph, "gemm", 0, 40), "norm") == [(120, 125), (120, 125)]
    assert times(slower(graph, "gemm", 1, 290), "norm") == [(320, 325), (320, 325)]


def test_with_coarse_communication_nobody_waits():
    graph = coarse_graph(run(), unaligned(2))
    assert times(graph, "norm") == [(120, 125), (120, 125)]
    assert times(slower(graph, "gemm", 1, 290), "norm") == [(120, 125), (320, 325)]


def test_a_collective_is_one_task_of_the_network_between_moments_of_its_members():
    graph = global_graph(run(), unaligned(2))
    (network,) = np.flatnonzero(select(graph, kind=TaskKind.COLLECTIVE))
    assert graph.lanes[graph.tasks.lane[network]].name == "network world of 0-1 lane 0"
    assert graph.tasks.size_bytes[network] == 4000 and graph.tasks.step[network] == 0
    channel = graph.edges.kind == EdgeKind.CHANNEL
    into, out_of = channel & (graph.edges.target == network), channel & (graph.edges.source == network)
    assert {graph.name_of(int(task)) for task in graph.edges.source[into]} == {"In all-reduce world #0"}
    assert {graph.name_of(int(task)) for task in graph.edges.target[out_of]} == {"Out all-reduce world #0"}
    moments = graph.where_name(lambda name: name.startswith(("In ", "Out ")))
    assert graph.tasks.duration_us[moments].tolist() == [0] * 4


def test_what_communicates_twice_as_fast():
    graph = global_graph(run(), unaligned(2))
    network = select(graph, kind=TaskKind.COLLECTIVE)
    faster = graph.with_times(duration_us=np.where(network, 0.5, 1.0) * graph.tasks.duration_us)
    assert times(faster, "norm") == [(110, 115), (110, 115)]


def test_a_clock_that_is_ahead_is_set_back():
    """Rank 1's clock shows 30 us more than that of rank 0; its trace begins there."""
    ahead = run()
    second = dataclasses.replace(ahead.ranks[1], first_us=ahead.ranks[1].first_us + 30)
    ahead = dataclasses.replace(ahead, ranks=(ahead.ranks[0], second))
    set_back = Alignment(
        offset_us=np.array([0.0, -30.0]), drift_ppm=np.zeros(2), host=np.arange(2),
        used=np.zeros(0, np.bool_), outliers=0, residual_us=0.0,
    )  # fmt: skip
    assert times(global_graph(ahead, set_back), "norm") == [(120, 125), (120, 125)]
    assert times(global_graph(ahead, unaligned(2)), "norm")[1] == (150, 155)


def test_the_critical_path_goes_over_ranks():
    path = critical_path(simulate(global_graph(run(), unaligned(2))))
    graph = path.schedule.graph
    ranks = task_ranks(graph)[list(path.tasks)]
    gemm = [int(rank) for rank, task in zip(ranks, path.tasks, strict=True) if graph.name_of(task) == "gemm"]
    assert gemm == [1] and path.length_us == 125


def test_a_change_is_simulated_in_part():
    graph = global_graph(run(), unaligned(2))
    changed = slower(graph, "gemm", 1, 290)
    part, whole = resimulate(simulate(graph), changed), simulate(changed)
    assert part.start_us.tolist() == whole.start_us.tolist()


def test_groups_on_one_link_take_turns():
    both = two_groups()
    apart = global_graph(both, unaligned(4))
    assert simulate(apart).makespan_us == 60
    shared = global_graph(both, unaligned(4), links={"left": "nic", "right": "nic"})
    assert "link nic" in [lane.name for lane in shared.lanes]
    assert simulate(shared).makespan_us == 110


def test_a_rank_of_its_own_keeps_its_graph():
    recording = RankRecording(0, world=1)
    recording.gemm(0, 10, 50)
    graph = global_graph(run_of(recording), unaligned(1))
    assert simulate(graph).makespan_us == 60


def test_a_run_without_ranks_is_refused():
    with raises(GlobalGraphError):
        global_graph(MatchedRun(ranks=(), matches=()), unaligned(0))


def test_what_is_no_task_cannot_be_joined():
    whole = run()
    lost = [dataclasses.replace(one, task=-1) for one in whole.ranks[1].communications]
    ranks = whole.ranks[0], dataclasses.replace(whole.ranks[1], communications=tuple(lost))
    with raises(GlobalGraphError, "rank 1", "all-reduce", "4000", "ProfilerActivity.CPU") as refusal:
        global_graph(dataclasses.replace(whole, ranks=ranks), unaligned(2))
    assert refusal.value.where == "rank1"
