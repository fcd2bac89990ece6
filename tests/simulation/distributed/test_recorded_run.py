from __future__ import annotations

import pytest

from daceml.simulation.distributed.recorded_run import RecordedRun
from tests.support.recorded_ranks import RankRecording
from tests.support.recorded_training import sum_us, traces


def test_ranks_that_say_one_host_have_one_clock():
    found = RecordedRun.of(list(reversed(traces([(1.0, 2.0)] * 2))))
    assert [trace.rank for trace in found.traces] == [0, 1]
    assert found.hosts == ("one", "one")
    assert found.alignment.basis == "nothing"


def test_the_replay_tells_who_waited():
    fast, slow = RecordedRun.of(traces([(1.0, 2.0)])).replay.ranks
    assert slow.waiting_us == pytest.approx(0, abs=10)
    assert fast.waiting_us > 6000
    assert fast.communication_us == pytest.approx(sum_us(4e6) + sum_us(2e6), rel=0.01)


def test_without_a_host_each_rank_has_a_clock_of_its_own():
    ranks = [RankRecording(rank) for rank in (0, 1)]
    for run in ranks:
        run.annotation("ProfilerStep#0", 0, 100)
        run.gloo("all_reduce", 62, 70, 20)
    found = RecordedRun.of([rank.trace() for rank in ranks])
    assert found.hosts == ("host of rank 0", "host of rank 1")
