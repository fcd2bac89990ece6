"""Replays of traces in checkouts: each file is replayed, refused with a reason, or a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.replay.suites import bars_of, measured


def test_without_checkouts_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("DACEML_SUITES", raising=False)
    assert measured(1.0) == ([], [])
    assert "DACEML_SUITES" in capsys.readouterr().out


def test_files_that_are_no_traces_are_left_alone_and_refusals_have_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DACEML_SUITES", str(tmp_path))
    (tmp_path / "package.json").write_text('{"name": "no trace"}')
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 2}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 5}
    where = {"device": 0, "stream": 7}
    events = [
        one | {"ts": 10.5 * number + late, "args": rest | {"correlation": number + 1}}
        for number in range(3)
        for one, late, rest in ((call, 0, {}), (kernel, 3, where))
    ]
    (tmp_path / "good.json").write_text(json.dumps({"traceEvents": events}))
    (tmp_path / "empty.json").write_text('{"traceEvents": [], "ph": ""}')
    rows, _ = measured(60.0)
    found = {row["case"]: row for row in rows}
    assert sorted(found) == ["empty.json", "good.json"]
    assert found["good.json"].get("tasks") == 6, found["good.json"]
    assert found["good.json"]["step_error"] == pytest.approx(0, abs=1e-9)
    assert found["empty.json"]["refused"]


def test_bars_tell_tracebacks_refusals_and_errors_without_a_warning_apart():
    good, warned = {"step_error": 0.0005, "warnings": []}, {"step_error": 0.3, "warnings": ["off"]}
    assert all(bar.met for bar in bars_of([good, good, warned]))
    bad = [good, good | {"step_error": 0.03}, {"fault": "KeyError"}]
    assert not any(bar.met for bar in bars_of(bad))
