"""What a replay says of each rank; on real traces, that it is what was recorded."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from daceml.profiling.kineto import read_traces
from daceml.simulation.distributed.clocks.alignment import align, unaligned
from daceml.simulation.distributed.global_graph import coarse_graph, global_graph
from daceml.simulation.distributed.matching import matched
from daceml.simulation.distributed.rank_lanes import task_ranks
from daceml.simulation.distributed.rank_run import rank_run
from daceml.simulation.distributed.replay import replayed
from daceml.simulation.primitives.select import select
from daceml.simulation.task import TaskKind
from tests.simulation.distributed.waiting_ranks import run, slower, two_groups

DATA = os.environ.get("DACEML_DATA")
recorded = pytest.mark.skipif(not DATA, reason="no recorded traces: DACEML_DATA is not set")


def test_waiting_and_communication_are_told_apart():
    first, second = replayed(global_graph(run(), unaligned(2))).ranks
    assert (first.waiting_us, first.queueing_us, first.communication_us) == (40, 0, 20)
    assert (second.waiting_us, second.communication_us) == (0, 20)
    assert (first.error, second.error) == (0, 0)
    assert first.recorded_us == first.predicted_us == 125
    assert first.predicted_step_us == 12


def test_the_critical_path_is_shared_out():
    whole = replayed(global_graph(run(), unaligned(2)))
    assert whole.network_critical_us == 20
    assert whole.ranks[1].critical_us > 90
    assert whole.network_critical_us + sum(rank.critical_us for rank in whole.ranks) == 125


def test_who_is_slower_makes_others_wait_longer():
    changed = replayed(slower(global_graph(run(), unaligned(2)), "gemm", 1, 290))
    assert changed.ranks[0].waiting_us == 240 and changed.predicted_us == 325


def test_waiting_for_a_link_is_not_waiting_for_others():
    seen = replayed(global_graph(two_groups(), unaligned(4), links={"left": "nic", "right": "nic"}))
    assert [rank.waiting_us for rank in seen.ranks] == [0, 0, 0, 0]
    assert sorted(rank.queueing_us for rank in seen.ranks) == [0, 0, 50, 50]


def test_with_coarse_communication_nothing_is_known_of_waiting():
    coarse = replayed(coarse_graph(run(), unaligned(2)))
    assert [rank.waiting_us for rank in coarse.ranks] == [0, 0]


@recorded
def test_eight_ranks_of_a_recommender_replay_as_recorded():
    whole = matched(rank_run(trace) for trace in read_traces(Path(DATA or "") / "traces/dlrm_8xV100"))
    assert [len(match.members) for match in whole.matches] == [8] * 8
    seen = replayed(global_graph(whole, align(whole.timings)))
    assert max(abs(rank.error) for rank in seen.ranks) <= 0.005
    assert abs(seen.error) <= 0.01


@recorded
def test_a_real_rank_that_is_late_delays_all_others():
    """Rank 7 begins its first collective last; 2 ms more there are 2 ms more for all."""
    whole = matched(rank_run(trace) for trace in read_traces(Path(DATA or "") / "traces/dlrm_8xV100"))
    graph = global_graph(whole, align(whole.timings))
    before = replayed(graph)
    late = np.flatnonzero((task_ranks(graph) == 7) & ~graph.on_device())[0]
    gap_us = graph.tasks.gap_us.copy()
    gap_us[late] += 2000
    after = replayed(graph.with_times(gap_us=gap_us))
    assert after.predicted_us - before.predicted_us == pytest.approx(2000, abs=100)
    network = select(graph, kind=TaskKind.COLLECTIVE)
    moved_us = (after.schedule.start_us - before.schedule.start_us)[network]
    assert moved_us == pytest.approx(2000, abs=100)
