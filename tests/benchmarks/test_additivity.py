"""The sum of a network's operators beside the network: what counts of the runs, and the bars."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.bars import Bar
from benchmarks.prediction.additivity import bars, less, measured
from benchmarks.prediction.networks import NETWORKS


def row(network: str, ratio: float, operators: int = 20) -> dict[str, Any]:
    return {
        "network": network,
        "network_us": 1000.0,
        "placed_us": 1000.0 * ratio,
        "warm_us": 900.0,
        "placed_over_network": ratio,
        "warm_over_network": 0.9,
        "operators": [f"aten::{number}" for number in range(operators)],
        "calls": 30,
        "quarters": [ratio - 0.01, ratio + 0.01],
        "alone": 0.9,
    }


def met(found: list[Bar]) -> list[bool]:
    return [bar.met for bar in found]


def test_a_sum_may_be_five_percent_off_either_way():
    assert met(bars([row("MLP", 1.049), row("convolutional", 0.951), row("LSTM", 1.0)])) == [True] * 4
    assert met(bars([row("MLP", 1.051), row("convolutional", 0.949), row("LSTM", 1.0)])) == [
        False,
        False,
        True,
        True,
    ]


def test_what_was_not_measured_and_too_few_operators_are_missed():
    assert met(bars([row("MLP", 1.0, operators=19)])) == [True, False, False, False]


def test_runs_that_another_interrupted_do_not_count():
    chain = {1: [(0, 1.0), (2, 9.0), (0, 1.0)], 2: [(0, 2.0), (0, 2.0), (1, 30.0)]}
    assert less([chain, {}], 0, 1) == pytest.approx(1.0)
    beside = {1: [(0, 0.25)] * 3, 2: [(0, 0.5)] * 3}
    assert less([chain, beside], 0, 1) == pytest.approx(0.75)


def test_where_every_run_was_interrupted_the_least_interrupted_ones_count():
    chain = {1: [(5, 7.0), (1, 1.0), (9, 8.0)], 2: [(1, 2.0), (5, 9.0), (7, 9.0)]}
    assert less([chain, {}], 0, 1) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_network_is_measured_from_end_to_end():
    assert len(NETWORKS) == 3
    for rounds in (4, 16, 40):  # more of them on a busy machine
        found = measured("LSTM of 32, batch of 4", rounds=rounds).as_json()
        if found["placed_us"] > 0:
            break
    assert {"aten::addmm", "aten::sigmoid", "aten::tanh"} <= set(found["operators"])
    assert found["calls"] > 100
    assert found["network_us"] > 0 and found["placed_us"] > 0 and len(found["quarters"]) == 4
