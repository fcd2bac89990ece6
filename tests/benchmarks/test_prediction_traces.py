"""Runs recorded on two devices, each predicted from the other: on the promised traces, and by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.prediction.traces import bars, matched_operations, measured
from tests.support.recorded_operators import ADD, GEMM, Run, square

KIND: dict[str, Any] = {
    "what": "kind of kernel", "by": "data sheets", "from": "A", "to": "B", "kind": "GEMM",
    "predicted_us": 90.0, "recorded_us": 100.0, "error": -0.1, "no_change_error": 0.3,
    "bandwidth_error": -0.2, "inside": True, "host_stays": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded() -> tuple[list[dict[str, Any]], dict[str, bool]]:
    folder = Path(os.environ.get("DACEML_DATA", ""))
    if not (folder / "traces" / "models_h100").is_dir():
        pytest.skip("the traces are not there: $DACEML_DATA names no folder that has them")
    rows, made = measured(folder)
    return rows, {bar.name: bar.met for bar in made}


@pytest.mark.slow
def test_products_copies_and_reductions_of_bert_small_keep_the_bar(
    recorded: tuple[list[dict[str, Any]], dict[str, bool]],
):
    rows, _ = recorded
    kinds = [row for row in rows if row["what"] == "kind of kernel"]
    assert {row["kind"] for row in kinds} >= {
        "GEMM",
        "attention",
        "normalisation",
        "elementwise",
        "reduction",
        "copy",
    }
    for row in kinds:
        if row["kind"] in ("GEMM", "reduction", "copy"):
            assert abs(row["error"]) <= 0.20, row
        if row["kind"] == "GEMM":
            assert abs(row["error"]) < min(abs(row["no_change_error"]), abs(row["bandwidth_error"]))


@pytest.mark.slow
def test_large_kernels_are_near_and_the_large_run_is_refused(
    recorded: tuple[list[dict[str, Any]], dict[str, bool]],
):
    rows, _ = recorded
    errors = {
        (row["to"], row["kind"]): row["mean_error"] for row in rows if row["what"] == "matched operations"
    }
    for device in ("MI300X", "H100-SXM5-80GB"):
        assert errors[device, "GEMM, 10 us and more"] < 0.1
        for kind in ("elementwise", "copy", "reduction"):
            assert errors[device, f"{kind}, 10 us and more"] < 0.2
    refusals = [row["reason"] for row in rows if row["what"] == "refusal"]
    assert len(refusals) == 2 and all("kernels (3" in one for one in refusals)


def test_equal_operations_are_found_wherever_they_stand():
    here = (
        Run()
        .operator("aten::mm", (GEMM, 400.0), dims=square(4096))
        .operator("aten::add", (ADD, 20.0), dims=square(64))
    )
    there = Run("AMD Instinct MI300X").operator("aten::add", (ADD, 8.0), dims=square(32))
    there.operator("aten::mm", ("Cijk_Ailk_Bljk_SB", 300.0), dims=square(4096))
    (row,) = matched_operations(here.wait().trace(), there.wait().trace())
    assert (row["kind"], row["calls"]) == ("GEMM, 10 us and more", 1)
    assert row["no_change_error"] == pytest.approx(400 / 300 - 1)


def test_bars_of_a_kind_of_kernel():
    met = {bar.name: bar.met for bar in bars([KIND])}
    assert met["bert-small from A to B, GEMM, by data sheets: error"]
    assert met["bert-small from A to B, GEMM, by data sheets: error over the better plain guess's"]
    worse = {bar.name: bar for bar in bars([{**KIND, "error": -0.25, "inside": False, "host_stays": False}])}
    assert not any(bar.met for name, bar in worse.items() if name.startswith("bert-small"))


def test_without_rows_nothing_is_met_by_silence():
    assert [bar.met for bar in bars([])] == [False, True, True]
