"""Measured times of collectives, and what lies between them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from daceml.errors import WhatIfError
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.nccl_tests import read_log

LOG = """# nThread 1 nGpus 2 minBytes 8 maxBytes 4096 step: 2(factor)
#   Rank  0 Pid  63453 on node-000000 device  0 [0x00] A100-SXM4-40GB
#   Rank  1 Pid  63453 on node-000000 device  1 [0x00] A100-SXM4-40GB
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
        1024           256     float     sum    10.00    0.10    0.10  1e-07    11.00    0.09    0.09  1e-07
[1,0]<stdout>:    4096      1024     float     sum    20    0.20    0.20    N/A    22.0   0.19    0.19    N/A
# Out of bounds values : 0 OK
"""


def rows_of(*rows: tuple[float, float]) -> MeasuredCollective:
    return MeasuredCollective.of(rows, collective=Collective.ALL_REDUCE, devices=2, source="story")


def test_times_lie_on_lines_between_logarithms():
    table = rows_of((100, 10), (10_000, 40))
    assert table.duration_us(1000) == pytest.approx(20)
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
    with pytest.raises(WhatIfError, match="1 measured sizes"):
        rows_of((100, 10))
    with pytest.raises(WhatIfError, match="of 100 bytes took -1 us"):
        rows_of((100, -1), (200, 3))


def test_the_output_of_nccl_tests_is_read_as_it_is_and_through_mpirun():
    table = read_log(LOG, collective=Collective.ALL_REDUCE, source="log")
    assert table.devices == 2
    assert table.sizes_bytes.tolist() == [1024, 4096] and table.times_us.tolist() == [10, 20]


def test_another_output_is_refused():
    with pytest.raises(WhatIfError, match="no rank is named"):
        read_log("hello", collective=Collective.ALL_REDUCE, source="log")


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_sizes_left_out_of_a_table_are_found_within_five_percent(devices: int):
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
    print(f"{devices} devices: mean {errors.mean():.2%}, max {errors.max():.2%} of {len(errors)} sizes")  # noqa: T201
    assert errors.mean() < 0.05
