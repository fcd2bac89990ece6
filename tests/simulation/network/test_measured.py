"""Measured times of collectives, and what lies between them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from daceml.errors import WhatIfError
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.measured import MeasuredCollective
from tests.support.golden import raises


def rows_of(*rows: tuple[float, float]) -> MeasuredCollective:
    return MeasuredCollective.of(rows, collective=Collective.ALL_REDUCE, devices=2, source="story")


def test_times_lie_on_lines_between_sizes():
    table = rows_of((100, 10), (10_000, 40))
    assert table.duration_us(1090) == pytest.approx(13)
    assert (table.duration_us(100), table.duration_us(10_000)) == (pytest.approx(10), pytest.approx(40))


def test_beyond_the_table_the_least_time_and_the_last_bandwidth_hold():
    table = rows_of((100, 10), (10_000, 40))
    assert (table.duration_us(1), table.duration_us(30_000), table.duration_us(0)) == (
        pytest.approx(10),
        120,
        0,
    )


def test_of_a_size_that_was_measured_three_times_the_median_counts():
    assert rows_of((100, 10), (100, 12), (100, 99), (200, 20)).duration_us(100) == pytest.approx(12)


def test_a_table_of_one_size_or_of_nonsense_is_refused():
    with raises(WhatIfError, "1", "all-reduce"):
        rows_of((100, 10))
    with raises(WhatIfError, "all-reduce", "100 bytes", "-1 us"):
        rows_of((100, -1), (200, 3))


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_sizes_left_out_of_a_table_are_found_within_two_percent(devices: int):
    data = os.environ.get("DACEML_DATA")
    found = sorted(Path(data or "", "measurements", "vtrain").glob(f"AR_GPU{devices}_*")) if data else []
    if not found:
        pytest.skip("DACEML_DATA has no look-up tables of vTrain")
    rows = np.loadtxt(found[0], delimiter=",", skiprows=1, usecols=(0, 3))
    rows[:, 1] /= 1e3  # nanoseconds
    kept = np.zeros(len(rows), np.bool_)
    kept[np.unique(np.geomspace(1, len(rows), 24).astype(int)) - 1] = True
    table = MeasuredCollective.of(
        rows[kept].tolist(), collective=Collective.ALL_REDUCE, devices=devices, source="vTrain"
    )
    errors = np.array([abs(table.duration_us(size) / time_us - 1) for size, time_us in rows[~kept]])
    assert errors.mean() < 0.02
