"""What predictions of operators are allowed to see, and how they are judged."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.prediction import ablation, left_out, operators
from benchmarks.prediction.blind import NEUSIGHT, figures_without, neusight, question
from benchmarks.prediction.judgement import judged
from benchmarks.prediction.small_boards import without_its_own
from daceml.devices.catalogue import find_device
from daceml.devices.specification import Sourced
from daceml.operations.estimate import Estimate
from daceml.operations.models.fitting.perceptrons import PerceptronSettings

GPUS = {"NVIDIA A100-PCIE-40GB": 1000.0, "Tesla V100-PCIE-32GB": 800.0, "Tesla T4": 220.0}  # GB/s


def write_additions(folder: Path, *, t4_factor: float = 1.0) -> Path:
    """Tables of additions on three GPUs in a folder like that of the set."""
    place = folder / "measurements/neusight/train/add/p2.1.0"
    place.mkdir(parents=True)
    (folder / "measurements/neusight/LICENSE").write_text("MIT License\n\nPermission is hereby granted")
    sizes = np.random.default_rng(0).integers(64, 4096, (120, 2))
    for gpu, rate in GPUS.items():
        with gzip.open(place / f"{gpu}.csv.gz", "wt", newline="") as file:
            names = [
                "OPName",
                "Latency",
                "Device",
                "Torch Version",
                "CUDNN Version",
                "CUDA Version",
                "B",
                "H",
            ]
            rows = csv.writer(file)
            rows.writerow(names)
            for b, h in sizes:
                ms = 0.02 + 12e-6 * b * h / rate
                ms *= t4_factor if "T4" in gpu else 1
                rows.writerow(["add", ms, gpu, "p2.1.0", "8", "cu121", b, h])
    return folder


def test_latencies_of_the_target_are_dropped_by_the_loader(tmp_path: Path):
    asked = question(neusight(write_additions(tmp_path), "add"), "T4")
    assert set(asked.table.seconds) == set(asked.table.devices) == {"A100-PCIe-40GB", "V100-PCIe-32GB"}
    assert len(asked.seconds) == len(asked.table.operations) == 120


def test_what_the_target_took_changes_no_prediction_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(left_out, "NEUSIGHT", ("add",))

    def rows(factor: float) -> list[dict[str, object]]:
        folder = write_additions(tmp_path / str(factor), t4_factor=factor)
        return left_out.measured(folder, quick=False)[0]

    plain, slowed = rows(1.0), rows(3.0)
    assert [row["device"] for row in plain] == ["A100-PCIe-40GB", "T4", "V100-PCIe-32GB"]
    assert plain[1]["width"] == slowed[1]["width"]
    assert plain[1]["error"] < 0.2
    assert slowed[1]["error"] > 0.5


@pytest.mark.slow
def test_a_tenth_is_held_out_and_the_bars_are_those_of_all_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(operators, "NEUSIGHT", ("add",))
    monkeypatch.setattr(operators, "QUICK_BUDGET_S", 0.0)
    rows, bars = operators.measured(write_additions(tmp_path), quick=True)
    assert {row["rows"] for row in rows} == {12}
    assert max(row["error"] for row in rows) < 0.05
    assert [bar.limit for bar in bars] == [0.05, pytest.approx(0.15), 0.95] * 2
    assert {row["elsewhere"] for row in rows} == {operators.KNOWN, operators.NEW}
    assert len(NEUSIGHT) == 7


def test_an_ablation_has_a_row_for_each_set_of_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ablation, "OPERATORS", ("add",))
    monkeypatch.setattr(ablation, "SETTINGS", PerceptronSettings(width=8, layers=1, passes=3))
    rows, bars = ablation.measured(write_additions(tmp_path), quick=True)
    assert not bars
    assert [row["features"] for row in rows][:2] == ["sizes", "sizes and their principal component"]
    assert all(np.isfinite(row["error"]) for row in rows)


def test_figures_of_a_device_that_come_from_the_answers_are_hidden():
    known = find_device("H100")
    assert "aiconfigurator" in " ".join(one.source for one in known.achieved_gemm_flops_per_s.values())
    hidden = figures_without("aiconfigurator")("H100")
    assert hidden is not None
    assert not hidden.achieved_gemm_flops_per_s
    assert figures_without("nobody")("H100") == known
    assert figures_without("nobody")("no such device") is None


def test_a_small_board_has_the_share_of_the_others():
    t4, v100 = find_device("T4"), find_device("V100")
    told = without_its_own(t4, {"T4": 0.1, "P4": 0.6})
    assert told.achieved_gemm_flops_per_s["float32"].value == pytest.approx(0.6 * 8.1e12)
    assert without_its_own(t4, {"T4": 0.1}) == t4
    assert without_its_own(v100, {"P4": 0.6}) == v100
    power = Sourced(value=75.0, source="these tests", verified=True)
    small = without_its_own(replace(v100, board_power_w=power), {"T4": 0.5, "P4": 0.6})
    assert small.achieved_gemm_flops_per_s["float32"].value == pytest.approx(0.55 * 15.7e12)


def test_a_judge_counts_errors_and_intervals():
    def estimate(us: float) -> Estimate:
        return Estimate(duration_us=us, low_us=0.9 * us, high_us=1.1 * us, basis="learned")

    seen = judged([estimate(10), estimate(10)], np.array([10e-6, 20e-6]))
    assert seen["error"] == pytest.approx(0.25)
    assert seen["covered"] == 0.5
    assert seen["width"] == pytest.approx(0.2)
