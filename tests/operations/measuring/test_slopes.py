"""Chains whose truth is known, under clocks that are disturbed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daceml.errors import MeasurementError
from daceml.operations.measuring.slopes import PATIENCE, Slopes, lengths, one_round, slopes, theil_sen
from tests.support.golden import raises


def chain(each_s: float, constant_s: float = 0.0, disturbed: Callable[[int], float] = lambda call: 0.0):
    calls = 0

    def timed(copies: int) -> float:
        nonlocal calls
        calls += 1
        return constant_s + copies * each_s + disturbed(calls)

    return timed


def test_what_is_the_same_for_every_length_cancels_out():
    found = slopes(chain(3e-6, constant_s=500e-6))
    assert found.median_s == pytest.approx(3e-6)
    assert found.mad_s == pytest.approx(0, abs=1e-12)
    assert found.deciles_s == pytest.approx((3e-6, 3e-6))
    assert len(found.lengths) >= 3


def test_one_disturbed_chain_of_a_round_does_not_count():
    # each round is a chain that is not timed and four that are; the third of each takes 10 ms longer
    timed = chain(1e-3, disturbed=lambda call: 10e-3 if call % 5 == 3 else 0.0)
    assert one_round(timed, (1, 2, 3, 4)) == pytest.approx(1e-3, rel=4)
    points = [(1, 1.0), (2, 2.0), (3, 13.0), (4, 4.0), (5, 5.0)]
    assert theil_sen(points) == pytest.approx(1.0)


def test_every_second_round_goes_from_long_to_short():
    asked: list[int] = []

    def timed(copies: int) -> float:
        asked.append(copies)
        return float(copies)

    one_round(timed, (1, 2, 3), 0)
    one_round(timed, (1, 2, 3), 1)
    assert asked == [1, 1, 2, 3, 1, 3, 2, 1]


@pytest.mark.parametrize("each_s", [1e-7, 5e-6, 1e-4, 1e-3, 0.5])
def test_chains_are_long_enough_for_a_clock_and_no_longer(each_s: float):
    found = lengths(chain(each_s))
    assert found == tuple(found[0] * number for number in (1, 2, 3, 4))
    assert found[-1] <= 4096
    assert found[-1] == 4 or found[-1] * each_s <= 8e-3


def test_noise_that_hides_an_operation_is_a_refusal():
    # as much more as less, far beyond what a copy takes
    timed = chain(1e-9, constant_s=1e-3, disturbed=lambda call: (call * 7919 % 13) * 1e-4)
    with raises(MeasurementError, "2, 4, 6, 8 copies", "ns"):
        slopes(timed, most=8)


def test_a_busy_machine_gets_more_rounds_before_anything_is_refused():
    # a neighbour works through the first three rounds, of five chains each, and ends
    timed = chain(1e-4, disturbed=lambda call: (call * 7919 % 13) * 1e-2 if call <= 3 * 5 + 8 else 0.0)
    found = slopes(timed, rounds=3)
    assert 3 < len(found.rounds_s) < 3 * PATIENCE
    assert found.median_s == pytest.approx(1e-4)


def test_a_budget_ends_a_measurement_that_has_three_rounds():
    assert len(slopes(chain(1e-4), spent=lambda: True).rounds_s) == 3


def test_spread_is_that_of_rounds():
    found = Slopes(lengths=(1, 2, 3), rounds_s=(1.0, 2.0, 3.0, 4.0, 100.0))
    assert found.median_s == 3.0 and found.mad_s == 1.0
    assert found.deciles_s[0] == pytest.approx(1.4)


def test_one_place_has_no_slope():
    with raises(ValueError, "two points"):
        theil_sen([(1, 2.0), (1, 3.0)])
