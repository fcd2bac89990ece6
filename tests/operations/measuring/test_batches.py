"""Times of what is too short for a clock."""

from __future__ import annotations

from itertools import cycle

import pytest

from daceml.operations.measuring.batches import duration


def test_runs_fill_a_batch_and_the_median_counts():
    runs: list[int] = []
    noise = cycle([1.0, 1.0, 1.0, 9.0])

    def timed(count: int) -> float:
        runs.append(count)
        return count * 10e-6 * next(noise)

    found = duration(timed, batches=8, batch_s=2e-3)
    assert found.seconds == pytest.approx(10e-6)
    assert runs[-1] * 10e-6 >= 2e-3 / 9
    assert set(runs[-8:]) == {runs[-1]}


def test_what_takes_no_time_ends():
    assert duration(lambda count: 0.0).seconds == 0.0


def test_the_spread_is_that_of_the_quartiles():
    values = cycle([0.9, 1.0, 1.1, 1.0])
    found = duration(lambda count: count * next(values), batches=40)
    assert found.seconds == pytest.approx(1.0)
    assert 0 < found.spread <= 0.1
