"""The order of rounds, and what is made of them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.rounds import Measurement, Slice, order_of_round


def rounds_of(*durations: tuple[float, float], foreign: float = 0.0) -> list[dict[str, Slice]]:
    return [
        {"ours": Slice(duration_us=a, foreign=0.0), "peer": Slice(duration_us=b, foreign=foreign)}
        for a, b in durations
    ]


def measurement(rounds: list[dict[str, Slice]]) -> Measurement:
    return Measurement(names=("ours", "peer"), rounds=tuple(rounds))


def test_every_variant_stands_at_every_place_equally_often():
    names = ("a", "b", "c")
    orders = [order_of_round(names, number) for number in range(6)]
    assert orders[0] == ("a", "b", "c")
    assert orders[1] == ("c", "b", "a")
    assert orders[2] == ("b", "c", "a")
    for place in range(3):
        assert set(Counter(order[place] for order in orders).values()) == {2}


def test_ratios_are_taken_within_a_round():
    # The machine slows down fourfold meanwhile: medians of each side alone would hide the ratio's steadiness.
    seen = measurement(rounds_of(*((1.0 * s, 2.0 * s) for s in (1, 1, 1, 2, 2, 4, 4, 4))))
    ratio = seen.ratio("ours", "peer")
    assert (ratio.value, ratio.low, ratio.high) == (0.5, 0.5, 0.5)
    assert seen.difference_us("ours", "peer").value == -2.0


def test_a_disturbed_round_is_dropped_whole():
    seen = measurement(rounds_of(*[(1.0, 2.0)] * 6) + rounds_of((1.0, 50.0), foreign=0.3))
    assert len(seen.clean) == 6
    assert seen.measured
    assert seen.duration_us("peer").high == 2.0


def test_fewer_than_six_clean_rounds_are_no_measurement_but_the_cleaner_half_is_shown():
    seen = measurement(rounds_of(*[(1.0, 2.0)] * 3) + rounds_of(*[(9.0, 9.0)] * 3, foreign=0.4))
    assert not seen.measured
    assert seen.ratio("ours", "peer").n == 3
    assert seen.ratio("ours", "peer").value == 0.5
    assert seen.row("peer")["measured"] is False


def test_a_row_names_its_units_and_its_baseline():
    row = measurement(rounds_of(*[(1.0, 2.0)] * 6)).row("peer")
    assert row["rounds"] == row["rounds_kept"] == 6
    assert row["variants"]["ours"]["ratio_over_peer"] == pytest.approx(
        {"median": 0.5, "low": 0.5, "high": 0.5, "n": 6}
    )
    assert row["variants"]["ours"]["duration_us"]["median"] == 1.0


def test_a_measurement_is_the_same_after_it_was_written():
    seen = Measurement(
        names=("ours", "peer"),
        rounds=tuple(rounds_of((1.0, 2.0))),
        foreign_limit=0.2,
        missing={"ort": "no wheel"},
    )
    assert Measurement.from_data(json.loads(json.dumps(seen.to_data()))) == seen
