"""Medians and their intervals."""

from __future__ import annotations

import random

import pytest

from daceml.interval import median_interval
from tests.support.golden import raises


def test_the_interval_of_ten_samples_drops_one_at_each_end():
    seen = median_interval([float(i) for i in range(10)])
    assert (seen.value, seen.low, seen.high, seen.n) == (4.5, 1.0, 8.0, 10)
    assert seen.confidence == pytest.approx(1 - 2 * 11 / 1024)  # Binomial(10, 1/2) < 2


def test_six_samples_are_the_fewest_that_reach_95_percent():
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]).confidence < 0.95
    six = median_interval([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert six.confidence >= 0.95
    assert (six.low, six.high) == (1.0, 6.0)


def test_one_sample_is_its_own_interval_and_says_that_it_means_nothing():
    seen = median_interval([7.0])
    assert (seen.value, seen.low, seen.high, seen.confidence) == (7.0, 7.0, 7.0, 0.0)


def test_no_sample_is_no_median():
    with raises(ValueError, "one sample"):
        median_interval([])


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    generator = random.Random(0)
    draws = [median_interval([generator.expovariate(1.0) for _ in range(12)]) for _ in range(2000)]
    true_median = 0.693147
    held = sum(seen.low <= true_median <= seen.high for seen in draws) / len(draws)
    # Nominally 0.961; three standard deviations of 2000 draws are 0.013.
    assert held == pytest.approx(draws[0].confidence, abs=0.013)
