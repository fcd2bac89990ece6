"""Occupancy beside a recorder's: by hand, and on the traces that are promised."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.prediction.occupancy import TRACES, expected_percent, measured, occupancy_bars, occupancy_row

V100 = {"computeMajor": 7, "computeMinor": 0, "numSms": 80, "maxThreadsPerMultiprocessor": 2048}


def kernel(
    blocks: int, threads: int, *, registers: int = 16, shared: int = 0, percent: int = 0
) -> dict[str, Any]:
    return {
        "device": 0, "grid": [blocks, 1, 1], "block": [threads, 1, 1], "registers per thread": registers,
        "shared memory": shared, "est. achieved occupancy %": percent,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("details", "percent", "full"),
    [
        (kernel(50, 256), 8, False),  # 0.625 blocks of 256 threads: 7.8 %
        (kernel(576, 64), 22, False),  # 7.2 blocks of 64 threads: 22.49999 in single precision
        (kernel(80_000, 128, registers=37), 75, True),  # the Best Practices Guide's
        (kernel(80_000, 256, shared=96 << 10), 13, True),  # one block: 12.5 %, with the opt-in
        (kernel(80_000, 1024, registers=128), 0, True),  # cannot be launched
    ],
)
def test_percents_by_hand(details: dict[str, Any], percent: int, full: bool):
    assert expected_percent(details, V100) == (percent, full)


def written(folder: Path, *kernels: dict[str, Any]) -> Path:
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"k{number}",
            "pid": 0,
            "tid": 7,
            "ts": 10 * number,
            "dur": 5,
            "args": one,
        }
        for number, one in enumerate(kernels)
    ]
    file = folder / "trace.json"
    file.write_text(json.dumps({"deviceProperties": [{"id": 0, **V100}], "traceEvents": events}))
    return file


def test_a_recorders_error_is_listed_and_a_difference_counts(tmp_path: Path):
    equal = kernel(80_000, 128, registers=37, percent=75)
    unasked = kernel(80_000, 256, shared=96 << 10, percent=0)
    row = occupancy_row(written(tmp_path, equal, unasked, unasked), "a")
    assert (row["kernels"], row["held_back"], row["equal"], row["different"]) == (3, 1, 1, 0)
    assert row["recorder_errors"] == [
        {"name": name, "shared_bytes": 96 << 10, "percent": 13, "count": 1} for name in ("k1", "k2")
    ]
    (bar,) = occupancy_bars(row, may_err=True)
    assert bar.met and "2 recorded as 0 with more than 48 KiB" in bar.note
    (bar,) = occupancy_bars(row, may_err=False)
    assert (bar.figure, bar.met) == (2, False)

    small = kernel(80_000, 128, registers=37, shared=48 << 10, percent=0)
    wrong = kernel(80_000, 128, registers=37, percent=74)
    row = occupancy_row(written(tmp_path, equal, small, wrong), "a")
    assert (row["different"], row["recorder_errors"]) == (2, []), "48 KiB need no opt-in"
    assert row["differences"][1] == {"name": "k2", "recorded": 74, "percent": 75}
    assert [bar.figure for bar in occupancy_bars(row, may_err=True)] == [2]


def test_a_trace_that_shows_nothing_meets_nothing(tmp_path: Path):
    of_grid = occupancy_row(written(tmp_path, kernel(50, 256, percent=8)), "a")
    assert (of_grid["equal"], of_grid["held_back"]) == (1, 0)
    silent = kernel(50, 256)
    del silent["est. achieved occupancy %"]
    nothing = occupancy_row(written(tmp_path, silent), "a")
    assert nothing["kernels"] == 0
    for row in (of_grid, nothing):
        (bar,) = occupancy_bars(row, may_err=True)
        assert bar.figure is None and not bar.met


@pytest.mark.slow
@pytest.mark.skipif("DACEML_DATA" not in os.environ, reason="DACEML_DATA names no folder of real traces")
def test_the_promise():
    rows, bars = measured(Path(os.environ["DACEML_DATA"]))
    assert [row["case"] for row in rows] == list(TRACES)
    assert len(bars) == len(rows) and all(bar.met for bar in bars), [bar.line() for bar in bars]
    by_case = {row["case"]: row for row in rows}
    assert by_case["ResNet-50, V100, no loader workers"]["equal"] == 8772
    assert by_case["ResNet-50, V100, 4 loader workers"]["equal"] == 8868
    dlrm = by_case["DLRM, A100"]
    assert (dlrm["kernels"], dlrm["equal"]) == (8568, 7344)
    assert sum(one["count"] for one in dlrm["recorder_errors"]) == 1224
    assert min(one["shared_bytes"] for one in dlrm["recorder_errors"]) > 48 << 10
