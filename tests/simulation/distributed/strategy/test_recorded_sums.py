from __future__ import annotations

import pytest

from daceml.simulation.distributed.recorded_run import RecordedRun
from daceml.simulation.distributed.strategy.recorded_moments import moments_of
from daceml.simulation.distributed.strategy.recorded_step import SentGradients
from daceml.simulation.distributed.strategy.recorded_sums import learned, sums_in
from daceml.simulation.distributed.waits import separated
from tests.support.recorded_training import MB, sum_us, traces


def test_a_sum_that_waits_for_the_one_before_it_is_busy_from_there_on():
    recorded = traces([(1.0, 1.0)])
    run = RecordedRun.of(recorded)
    gradients = SentGradients.of(recorded[0].header)
    moments = moments_of(run.run, run.alignment, gradients.order)
    found = sums_in(run.run, separated(run.run.timings, run.alignment), moments, None)
    assert [one.size_bytes for one in found] == [4 * MB, 2 * MB]
    assert [one.busy_us for one in found] == pytest.approx([sum_us(4 * MB), sum_us(2 * MB)], abs=10)


def test_lines_go_through_a_latency_and_the_medians():
    found, how = learned([(1 * MB, 700.0), (1 * MB, 900.0), (1 * MB, 5000.0), (4 * MB, 2400.0)], 100.0)
    assert "medians of 2 sizes" in how
    assert [found.sync_us(size * MB) for size in (0.5, 1, 2.5, 4, 7)] == pytest.approx(
        [500, 900, 1650, 2400, 3900]
    )


def test_of_one_size_the_rest_is_bandwidth():
    found, how = learned([(2 * MB, 1100.0)], 100.0)
    assert "1 size" in how
    assert [found.sync_us(size * MB) for size in (1, 4)] == [600, 2100]


def test_two_small_sums_are_never_faster_than_one_of_both():
    # the larger one came first, and shared its cores with the backward pass
    found, how = learned([(1 * MB, 400.0), (2 * MB, 2000.0)], 100.0)
    assert "one bandwidth for 2 sizes" in how
    assert 2 * found.sync_us(1 * MB) > found.sync_us(2 * MB)
    assert found.sync_us(1 * MB) + found.sync_us(2 * MB) == pytest.approx(2400), "together as recorded"


def test_a_latency_above_all_that_was_seen_is_none():
    found, _ = learned([(1 * MB, 50.0), (2 * MB, 60.0)], 100.0)
    assert [found.sync_us(size * MB) for size in (0.1, 1, 2)] == pytest.approx([50.3, 53.3, 56.7], abs=0.1)
