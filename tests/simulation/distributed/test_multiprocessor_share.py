"""Kernels that run while others communicate have fewer multiprocessors."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.simulation.distributed.clocks.alignment import unaligned
from daceml.simulation.distributed.global_graph import global_graph
from daceml.simulation.distributed.multiprocessor_share import multiprocessor_shares, with_shares
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.select import select
from daceml.simulation.task import TaskKind
from tests.support.recorded_ranks import RankRecording, run_of


def overlapping() -> tuple[TaskGraph, np.ndarray]:
    """Two ranks that compute for 100 us, and communicate for 50 of them on 8 of 80 multiprocessors."""
    ranks: list[RankRecording] = []
    for rank in range(2):
        recording = RankRecording(rank)
        recording.gemm(0, 10, 100)
        recording.collective("nccl:all_reduce", 4, 20, 50)
        ranks.append(recording)
    run = run_of(*ranks)
    graph = global_graph(run, unaligned(2))
    return graph, multiprocessor_shares(graph, run)


def lasting(graph: TaskGraph) -> list[float]:
    schedule = simulate(graph)
    gemms = graph.where_name(lambda name: name == "gemm")
    return (schedule.end_us - schedule.start_us)[gemms].tolist()


def test_the_share_is_that_of_the_channels():
    graph, shares = overlapping()
    assert shares[shares > 0].tolist() == [0.1, 0.1]
    assert {graph.name_of(int(task)) for task in np.flatnonzero(shares)} == {"In all-reduce world #0"}


def test_an_unchanged_run_stays_as_it_is():
    graph, shares = overlapping()
    assert lasting(with_shares(graph, graph, shares)) == pytest.approx([100, 100])


def test_without_communication_kernels_have_the_device_for_themselves():
    graph, shares = overlapping()
    network = select(graph, kind=TaskKind.COLLECTIVE)
    quick = graph.with_times(duration_us=np.where(network, 0, graph.tasks.duration_us))
    assert lasting(with_shares(quick, graph, shares)) == pytest.approx([95, 95])


def test_communication_that_lasts_longer_costs_more():
    graph, shares = overlapping()
    network = select(graph, kind=TaskKind.COLLECTIVE)
    slow = graph.with_times(duration_us=np.where(network, 500, graph.tasks.duration_us))
    # 10 us alone, then w + 0.1 * o with o = the rest: 95 = 10 + 0.9 * o
    assert lasting(with_shares(slow, graph, shares)) == pytest.approx([10 + 85 / 0.9] * 2, abs=0.01)
