"""Wave scaling beside what was measured: by hand."""

from __future__ import annotations

import pytest

from benchmarks.prediction.wave_scaling import bars, scaled
from daceml.devices.catalogue import find_device
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation

V100, P100 = (find_device(name) for name in ("V100-PCIe-16GB", "P100-PCIe-16GB"))


def entry(device: str, seconds: float, *, rows: int = 4096) -> Entry:
    operand = Operand(shape=(rows, 4096), dtype="float32")
    return Entry(
        operation=Operation(operator="aten::add", operands=(operand, operand)),
        environment=Environment(device=device), duration=Duration(median_s=seconds), provenance="imported",
        source="a test", licence="MIT", date="2026-11-20",
    )  # fmt: skip


def test_what_follows_from_the_rates_of_memory_is_predicted():
    assert V100.achieved_bytes_per_s is not None and P100.achieved_bytes_per_s is not None
    ratio = V100.achieved_bytes_per_s.value / P100.achieved_bytes_per_s.value
    row = scaled("add", [entry(V100.name, 1e-3), entry(P100.name, 1e-3 * ratio)])
    assert (row["pairs"], row["outside"]) == (2, 0) and row["median_factor"] == pytest.approx(1.0, abs=0.05)


def test_what_is_far_off_is_outside_and_short_rows_do_not_count():
    row = scaled("add", [entry(V100.name, 1e-3), entry(P100.name, 1e-2)])
    assert (row["pairs"], row["outside"]) == (2, 2)
    assert [bar.met for bar in bars([row])] == [False]
    assert scaled("add", [entry(V100.name, 1e-3), entry(P100.name, 4e-5)])["pairs"] == 0
    assert scaled("add", [entry(V100.name, 1e-3), entry(P100.name, 1e-3, rows=1)])["pairs"] == 0


def test_without_rows_the_bar_is_missed():
    assert [bar.met for bar in bars([scaled("add", [])])] == [False]
