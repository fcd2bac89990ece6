from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import pytest

from daceml.distributed.bucket_plan import planned_buckets
from tests.support import recorded_training
from tests.support.command_line import told
from tests.support.golden import golden
from tests.support.recorded_training import LAYERS, documents, step_us, written


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return written(tmp_path / "traces")


def test_what_was_read_what_was_found_and_what_to_write(traces: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = told(capsys, "trace", "optimize", traces, "--budget", "2s", "--quiet")
    assert (code, err) == (0, "")
    assert all(fact in out for fact in ("2 ranks", "1 host", "6 communications", "1 of 1"))
    for row in ("torch's default", "the best limit", "found", "found without tensor fusion"):
        assert row in out
    assert 'daceml.DistDataParallel(model, buckets="plan.json")' in out


def test_figures_as_json_and_a_plan_that_dist_data_parallel_takes(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    plan = tmp_path / "plan.json"
    code, out, err = told(capsys, "trace", "optimize", traces, "--budget", "2s", "--json", "--plan", plan)
    assert code == 0
    answer = json.loads(out)
    assert answer["typical_us"] == pytest.approx(step_us(), rel=0.001)
    assert abs(answer["model_error"]) < 0.001
    assert answer["found_us"] <= answer["limit_us"] <= answer["default_us"]
    # the recorded buckets are the best ones, and 2 MiB is a limit with which torch makes the same
    assert answer["found_us"] == pytest.approx(step_us(), rel=0.01)
    assert [rank["rank"] for rank in answer["ranks"]] == [0, 1]
    parameters = {f"{layer}.weight": (size, "float32") for layer, size, *_ in LAYERS}
    assert planned_buckets(plan, parameters) == (("last.weight",), ("first.weight",))
    assert "simulated steps" in err or answer["found_us"] == answer["limit_us"], "progress goes to stderr"


def test_a_link_makes_another_answer(traces: Path, capsys: pytest.CaptureFixture[str]):
    answers = [
        json.loads(told(capsys, "trace", "optimize", traces, "--budget", "1s", "--json", "--link", speed)[1])
        for speed in ("100Mbps", "100Gbps")
    ]
    slow, fast = (answer["found_us"] for answer in answers)
    # 6 MB at 100 Mbit/s are half a second; at 100 Gbit/s only computing is left
    assert slow > 480_000
    assert fast == pytest.approx(10_500, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["absent"], ["absent"]),
        (["DIR", "--budget", "soon"], ["--budget 'soon'"]),
        (["DIR", "--memory", "80GB"], ["[DML662] ", "memory"]),
        (["DIR", "--memory", "much"], ["'much'"]),
        (["DIR", "--link", "fast"], ["'fast'"]),
    ],
)
def test_refusals(traces: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], facts: list[str]):
    given = [str(traces) if word == "DIR" else word for word in arguments]
    code, _, err = told(capsys, "trace", "optimize", *given)
    assert (code, err) == (2, golden())
    assert all(fact in err for fact in facts)


def test_a_run_that_was_not_recorded_by_us_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for rank, document in enumerate(documents()):
        del document["daceml"]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    code, _, err = told(capsys, "trace", "optimize", tmp_path)
    assert (code, err) == (2, golden())
    assert err.startswith("[DML662] ") and "gradients" in err and "daceml.profile(model)" in err


def test_no_advice_on_a_step_that_the_model_misses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Two sums of one size: that which hides takes 50 ms, the other 1 ms. A model of sizes cannot tell."""
    layers = (("last", 4_000_000, 1000.0, 3000.0), ("first", 4_000_000, 2000.0, 60_000.0))
    lasts_us = cycle((50_000.0, 1000.0))
    monkeypatch.setattr(recorded_training, "LAYERS", layers)
    monkeypatch.setattr(recorded_training, "sum_us", lambda size: next(lasts_us))
    folder, plan = written(tmp_path / "traces"), tmp_path / "plan.json"
    code, out, err = told(capsys, "trace", "optimize", folder, "--budget", "1s", "--plan", plan, "--quiet")
    assert (code, err) == (2, golden())
    assert "no advice" in err and "more than 10%" in err
    assert "to apply" not in out and not plan.exists()


def test_what_does_not_fit_is_sharded_or_made_in_smaller_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank, document in enumerate(documents()):
        document["daceml"]["optimizer"] = {"name": "Adam"}
        for at, allocated in ((10, 30_000_000), (9000, 60_000_000)):
            facts = {"Device Type": 1, "Device Id": 0, "Bytes": 100, "Total Allocated": allocated}
            event = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": facts}
            document["traceEvents"].append(event)
        (folder / f"run_rank{rank}.json").write_text(json.dumps(document))
    # 6 MB each of parameters and gradients, 12 of Adam, 6 that nobody knows, 30 for the backward pass
    answers = {
        memory: json.loads(
            told(
                capsys,
                "trace",
                "optimize",
                folder,
                "--memory",
                memory,
                "--context",
                "1MB",
                "--json",
                "--budget",
                "1s",
            )[1]
        )
        for memory in ("61MB", "50MB", "25MB")
    }
    assert {memory: answer["chosen"] for memory, answer in answers.items()}["61MB"] == []
    usual = told(capsys, "trace", "optimize", folder, "--memory", "61MB", "--budget", "1s")
    assert usual[0] == 2 and "[DML661] " in usual[2], "a usual context is larger"
    assert answers["50MB"]["chosen"]
    for memory, limit in (("50MB", 50e6), ("25MB", 25e6)):
        fitting = [one["peak_bytes"] for one in answers[memory]["candidates"] if one["fits"]]
        assert fitting
        assert max(fitting) <= limit
    code, _, err = told(capsys, "trace", "optimize", folder, "--memory", "1MB", "--budget", "1s")
    assert code == 2
    assert "[DML661] " in err
