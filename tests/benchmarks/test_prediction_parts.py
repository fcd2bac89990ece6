"""Parts of the program of predictions, where the truth is planted: what is held out is not looked at."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.prediction import nccl, rooflines
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation


def entry(operator: str, shape: tuple[int, ...], seconds: float, **attributes: int) -> Entry:
    dtype = "int8" if operator.startswith("nccl") else "float32"
    return Entry(
        operation=Operation(
            operator=operator, operands=(Operand(shape=shape, dtype=dtype),), attributes=attributes
        ),
        environment=Environment(device="Tesla T4"),
        duration=Duration(median_s=seconds),
        provenance="imported",
        source="a story",
        licence="CC0-1.0",
        date="2026-11-20",
    )


def test_sizes_in_between_follow_a_latency_and_a_bandwidth():
    sizes = [2**k for k in range(10, 21)]
    entries = [entry("nccl::all_gather", (s,), 1e-5 + s / 1e10, devices=2) for s in sizes]
    (row,) = nccl.held_out("planted", entries)
    assert row["collective"] == "all-gather" and len(row["large_errors"]) == 2
    assert max(row["large_errors"] + row["small_errors"]) < 1e-9
    # a size that is held out does not move what is said of it
    entries[7] = entry("nccl::all_gather", (sizes[7],), 1.0, devices=2)
    (row,) = nccl.held_out("planted", entries)
    assert max(row["large_errors"]) == pytest.approx(1, abs=1e-3)


def test_bars_of_a_machine_and_of_none():
    rows = [{"machine": "m", "large_errors": [0.1, 0.02], "small_errors": [0.5]}]
    (bar,) = nccl.bars(rows)
    assert (bar.figure, bar.met) == (pytest.approx(0.06), False) and " m, " in bar.name
    assert not nccl.bars([])[0].met


def test_one_row_in_ten_is_predicted_from_the_others():
    random = np.random.default_rng(0)
    shapes = [(int(2 ** random.uniform(4, 14)), 512) for _ in range(300)]
    entries = [entry("aten::gelu", s, max(2e-5, 1e-5 + s[0] * s[1] * 8 / 2e11)) for s in shapes]
    row = rooflines.held_out("gelu", entries)
    assert row["tested"] == 30 and 0 < row["large"] < 30
    assert row["large_error"] < 0.03 and row["small_error"] < 0.1
    seen = {bar.name: bar for bar in rooflines.bars([row])}
    assert seen["NeuSight, gelu of 50 us and more by roofline: mean error"].met
    assert not seen["NeuSight, add of less by roofline: mean error"].met, "nobody measured it"
