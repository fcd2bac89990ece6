"""Clocks whose offset and drift are known, found again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daceml.errors import AlignmentError
from daceml.simulation.distributed.clocks.alignment import align, unaligned
from tests.simulation.distributed.drawn_runs import drawn, worst_us
from tests.support.golden import raises
from tests.support.recorded_ranks import timings_of

NAN = float("nan")


def test_one_collective_is_enough_for_an_offset():
    timings = timings_of([[0, 100, 40]], [[50, 950, 60]])
    assert align(timings).offset_us.tolist() == [0, -900, -10]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.integers(0, 1000))
def test_offsets_are_found_within_the_jitter(offsets: list[float], seed: int):
    offset_us = [0.0, *offsets]
    found = align(drawn(offset_us, count=40, seed=seed))
    # over 400 seeds, the error of one offset has a standard deviation of 0.42 us
    assert worst_us(found, offset_us) < 5 * 0.42


@pytest.mark.parametrize("ppm", [10, 100])
def test_drift_is_found_over_a_minute(ppm: float):
    offset_us, drift_ppm = [0, 1e6, -5e3], [0, ppm, -ppm]
    timings = drawn(offset_us, drift_ppm=drift_ppm, count=200, lasting_us=60e6)
    found = align(timings)
    assert worst_us(found, offset_us, drift_ppm, until_us=60e6) < 2
    assert found.drift_ppm == pytest.approx(drift_ppm, abs=0.05)


def test_a_tenth_of_outliers_does_not_matter_and_is_counted():
    offset_us = [0, 5e3, -500]
    found = align(drawn(offset_us, count=500, outliers=0.1))
    assert worst_us(found, offset_us) < 1
    assert 35 <= found.outliers <= 65  # of about 50
    assert found.used.sum() == 500 - found.outliers


def test_ranks_of_one_host_share_a_clock():
    offset_us = [0, 0, -3e3, -3e3]
    found = align(drawn(offset_us, count=50), ["a", "a", "b", "b"])
    assert found.host.tolist() == [0, 0, 1, 1]
    assert found.offset_us[2] == found.offset_us[3]
    assert worst_us(found, offset_us) < 1


def test_on_one_host_there_is_nothing_to_find():
    found = align(drawn([0, 0], count=10), ["a", "a"])
    assert found.offset_us.tolist() == [0, 0] and not found.used.any()


def test_clocks_are_related_through_other_ranks():
    timings = timings_of([[0, 10, NAN], [NAN, 100, 230]], [[50, 60, NAN], [NAN, 150, 280]])
    assert align(timings).offset_us.tolist() == [0, -10, -140]


def test_nobody_ends_before_all_have_begun():
    # By their ends alone, two collectives of which one is off by 6 us leave the offset open from 0 to 6;
    # in the first one the other rank had not ended when this one began, which leaves 0 to 2.
    timings = timings_of([[0, 48], [100, 142]], [[50, 50], [150, 144]])
    assert 0 <= align(timings).offset_us[1] <= 2


def test_a_receive_does_not_end_before_its_send_begins():
    timings = timings_of([[100.0, 0.0]], [[102.0, 40.0]], joint=False, senders=[0])
    found = align(timings)
    assert found.aligned_us(timings.end_us)[0, 1] >= 100


def test_the_variance_of_durations_finds_offsets_too():
    offset_us = [0, 5e3, -500]
    assert worst_us(align(drawn(offset_us, count=60), objective="variance"), offset_us) < 1


def test_a_sample_of_a_long_run_is_enough():
    offset_us = [0, 5e3]
    found = align(drawn(offset_us, count=5000), observations=200)
    assert found.used.sum() <= 100 and worst_us(found, offset_us) < 1


def test_clocks_that_nothing_relates_are_refused():
    timings = timings_of([[0, 10, NAN], [50, 60, NAN]], [[5, 15, NAN], [55, 65, NAN]])
    with raises(AlignmentError, "column 2"):
        align(timings)


def test_the_variance_says_nothing_of_drift():
    with raises(AlignmentError, "variance", 'objective="ends"', "drift=False"):
        align(drawn([0, 5]), objective="variance", drift=True)


def test_hosts_must_be_named_for_all_ranks():
    with raises(AlignmentError, "1", "2 ranks"):
        align(drawn([0, 5]), ["a"])


def test_clocks_as_they_are():
    times = np.array([[3.0, 4.0]])
    assert unaligned(2).aligned_us(times).tolist() == times.tolist()
