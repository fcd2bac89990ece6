"""Steps from shapes alone beside labels: what is counted, and that a label is only compared."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.prediction.shapes import LABELS, bars, measured

ROW = {
    "device": "L4", "model": "m", "mode": "inf", "tokens": 1, "batch": 1, "fused": False,
    "predicted_us": 10, "measured_us": 12, "low_us": 8, "high_us": 20,
}  # fmt: skip


def test_labels_outside_of_their_limits_are_counted():
    mean, largest, outside, *_ = bars([ROW, {**ROW, "device": "T4", "measured_us": 30}])
    assert outside.figure == 0.5
    assert not outside.met
    assert mean.figure == pytest.approx((1 / 6 + 2 / 3) / 2)
    assert "L4" in mean.note and "T4" in mean.note
    assert largest.figure == pytest.approx(2 / 3)


def test_a_fused_run_is_compared_with_the_plain_one():
    fused = {**ROW, "fused": True, "predicted_us": 8, "measured_us": 10}
    *_, winners, points = bars([ROW, fused])
    assert winners.figure == 0
    assert points.figure == pytest.approx(0.05)
    *_, winners, points = bars([ROW, {**fused, "predicted_us": 11}])
    assert winners.figure == 1
    assert not winners.met


def test_without_labels_nothing_is_met(tmp_path: Path):
    rows, made = measured(tmp_path)
    assert rows == []
    assert not any(bar.met for bar in made)


def test_a_model_that_shapes_do_not_decide_is_told_and_not_barred(tmp_path: Path):
    pytest.importorskip("transformers")
    folder = tmp_path / LABELS / "NVIDIA_L4"
    folder.mkdir(parents=True)
    label = gzip.compress(json.dumps({"e2e_latency": 50.0}).encode())
    (folder / "switch4-inf-512-1.json.gz").write_bytes(label)
    (row,), made = measured(tmp_path)
    assert row["predicted_us"] is None
    assert row["why"].startswith("which expert takes a token follows from data")
    assert not any(bar.met for bar in made)


@pytest.mark.slow
def test_a_label_says_nothing_to_its_prediction(tmp_path: Path):
    pytest.importorskip("transformers")

    def label(ms: float) -> Path:
        folder = tmp_path / str(ms) / LABELS / "NVIDIA_L4"
        folder.mkdir(parents=True)
        told = json.dumps({"e2e_latency": ms}).encode()
        (folder / "bert_large-inf-512-1.json.gz").write_bytes(gzip.compress(told))
        (folder / "bert_large-inf-512-1-fusion.json.gz").write_bytes(gzip.compress(told))
        return tmp_path / str(ms)

    (joined, one), _ = measured(label(10.0))
    (_, other), _ = measured(label(1e6))
    assert joined["fused"]
    assert joined["predicted_us"] < one["predicted_us"]
    assert one["measured_us"] == 10_000
    assert (one["predicted_us"], one["low_us"]) == (other["predicted_us"], other["low_us"])
