"""Large traces are made of small ones, and loading them is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import trace_loading
from benchmarks.trace_examples import training_run
from benchmarks.trace_loading import bars_of, write_repeated
from daceml.profiling.kineto import read_trace
from daceml.profiling.trace import EventKind


def test_a_repeated_trace_is_one_long_run(tmp_path: Path):
    path = tmp_path / "trace.json"
    write_repeated(training_run(steps=1), path, megabytes=0.03)
    trace = read_trace(path)
    kernels = trace.events.of(EventKind.KERNEL)
    assert path.stat().st_size > 30_000
    assert len(kernels) % 4 == 0
    assert len(kernels) > 8
    assert len(np.unique(trace.events.correlation[kernels])) == len(kernels)
    assert trace.notes == ()


def test_bars_take_the_slowest_and_the_largest():
    rows = [{"seconds": [1, 9, 2], "peak_bytes": 10}, {"seconds": [7.5], "peak_bytes": 3e9}]
    assert [(bar.figure, bar.met) for bar in bars_of(rows)] == [(7.5, True), (3e9, False)]
    assert not any(bar.met for bar in bars_of([]))


@pytest.mark.slow
def test_the_peak_is_that_of_reading_alone(tmp_path: Path):
    """Not of the program that asks: one that once took 600 MB, as this does, would fail every bar."""
    large = np.ones(75_000_000)
    path = tmp_path / "trace.json"
    write_repeated(training_run(steps=1), path, megabytes=0.03)
    peak = trace_loading.measured(path, rounds=1)["peak_bytes"]
    assert large.nbytes > 2 * peak


def test_a_small_measurement(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("DACEML_DATA", raising=False)
    assert trace_loading.main(["--rounds", "1", "--megabytes", "0.1", "--check"]) == 0
    assert "19000" in capsys.readouterr().out
