"""Steps from shapes alone beside labels: what is counted, and that a label is only compared."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.prediction.shapes import LABELS, bars, measured


def test_labels_outside_of_their_limits_are_counted():
    inside = {"predicted_us": 10, "measured_us": 12, "low_us": 8, "high_us": 20}
    (bar,) = bars([inside, {**inside, "measured_us": 30}])
    assert bar.figure == 0.5
    assert not bar.met
    assert bar.note == "2 labels, mean error 41.7%, largest 66.7%"


def test_without_labels_nothing_is_met(tmp_path: Path):
    rows, (bar,) = measured(tmp_path)
    assert rows == []
    assert not bar.met


def test_a_label_says_nothing_to_its_prediction(tmp_path: Path):
    pytest.importorskip("transformers")

    def label(ms: float) -> Path:
        folder = tmp_path / str(ms) / LABELS / "NVIDIA_L4"
        folder.mkdir(parents=True)
        told = json.dumps({"e2e_latency": ms}).encode()
        (folder / "bert_large-inf-512-1.json.gz").write_bytes(gzip.compress(told))
        (folder / "bert_large-inf-512-1-fusion.json.gz").write_bytes(gzip.compress(told))
        return tmp_path / str(ms)

    (one,), _ = measured(label(10.0))
    (other,), _ = measured(label(1e6))
    assert one["measured_us"] == 10_000
    assert (one["predicted_us"], one["low_us"]) == (other["predicted_us"], other["low_us"])
