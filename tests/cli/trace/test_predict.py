"""`daceml trace predict`: a recorded run on other devices."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from daceml.cli.trace.trace_file import is_model
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation
from daceml.operations.database.store import OpDatabase
from daceml.text_tables import WIDTH
from tests.support.command_line import told
from tests.support.golden import golden
from tests.support.recorded_operators import ADD, GEMM, Run, square


def written(path: Path, *, each_us: float = 400.0, device: str | None = "NVIDIA H100 80GB HBM3") -> Path:
    """A step that waits for ten products and ten additions."""
    run = Run(device)
    for _ in range(10):
        run.operator("aten::mm", (GEMM, each_us), dims=square(4096))
        run.operator("aten::add", (ADD, each_us / 4), dims=square(4096))
    path.write_bytes(gzip.compress(json.dumps(run.wait().document()).encode()))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return written(tmp_path / "run.json.gz")


def figures(out: str, device: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.startswith(device)]
    return line.split()


def test_a_row_for_each_device_the_fastest_first(trace: Path, capsys: pytest.CaptureFixture[str]):
    samples = ["--batch-recorded", 8]
    code, out, err = told(capsys, "trace", "predict", trace, "--to", "L4,A100-SXM4-80GB,h100", *samples)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= WIDTH or "note:" in out
    assert "H100-SXM5-80GB: 5.0" in out.splitlines()[0]
    places = [out.index(f"\n{name}") for name in ("H100-SXM5-80GB", "A100-SXM4-80GB", "L4")]
    assert places == sorted(places)
    _, step, low, _, high, kernels, rate = figures(out, "A100-SXM4-80GB")
    assert float(low) < float(step) < float(high) and float(kernels) <= float(step)
    assert float(rate.replace(",", "")) == pytest.approx(8 / (float(step) / 1e3), rel=0.01)
    assumed = " ".join(out.split()).partition("assumed: ")[2].partition(" note: ")[0]
    assert assumed == golden()


def test_of_one_device_kinds_of_kernels_are_listed(trace: Path, capsys: pytest.CaptureFixture[str]):
    _, out, _ = told(capsys, "trace", "predict", trace, "--to", "A100-SXM4-80GB")
    assert figures(out, "GEMM")[:3] == ["GEMM", "10", "4000.0"] and figures(out, "GEMM")[-1] == "roofline"
    assert figures(out, "elementwise")[-2:] == ["wave", "scaling"]
    assert "steps/s" in out and "samples/s" not in out


def test_on_the_same_device_it_takes_what_it_took(trace: Path, capsys: pytest.CaptureFixture[str]):
    _, out, _ = told(capsys, "trace", "predict", trace, "--to", "H100", "--json")
    (seen,) = json.loads(out)["predictions"]
    assert seen["step_us"] == seen["recorded_us"] == seen["step_low_us"] == seen["step_high_us"]
    assert {task["method"] for task in seen["tasks"]} == {"same device"}


def test_prices_are_the_user_s_with_their_dates(trace: Path, capsys: pytest.CaptureFixture[str]):
    prices = ["--price", "L4=0.5@2026-05-20", "--price", "H100=30@2026-05-21"]
    code, out, _ = told(capsys, "trace", "predict", trace, "--to", "H100,L4,T4", *prices, "--sort", "cost")
    assert code == 0
    places = [out.index(f"\n{name}") for name in ("L4", "H100-SXM5-80GB", "T4")]
    assert places == sorted(places)  # what has no price is last
    (price,) = [line for line in out.splitlines() if "2026-05-20" in line]
    assert price == golden()
    assert "L4" in price and "0.5" in price


def test_the_most_samples_a_second_first(trace: Path, capsys: pytest.CaptureFixture[str]):
    arguments = [
        "trace",
        "predict",
        trace,
        "--to",
        "T4,H200,L4",
        "--batch-recorded",
        8,
        "--sort",
        "throughput",
        "--json",
    ]
    rates = [seen["samples_per_s"] for seen in json.loads(told(capsys, *arguments)[1])["predictions"]]
    assert rates == sorted(rates, reverse=True) and len(set(rates)) == 3


def test_json_has_every_task_with_its_reason(trace: Path, capsys: pytest.CaptureFixture[str]):
    _, out, _ = told(
        capsys,
        "trace",
        "predict",
        trace,
        "--to",
        "L4",
        "--batch-recorded",
        8,
        "--price",
        "L4=0.5@2026-05-20",
        "--json",
    )
    (seen,) = json.loads(out)["predictions"]
    assert (seen["origin"], seen["device"], seen["batch"]) == ("H100-SXM5-80GB", "L4", 8)
    assert seen["samples_per_usd"] == pytest.approx(seen["samples_per_s"] * 3600 / 0.5)
    assert seen["price"] == {"usd_per_hour": 0.5, "date": "2026-05-20"}
    assert len(seen["tasks"]) == 20 and all(task["reason"] for task in seen["tasks"])


def test_another_batch_from_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    traces = [written(tmp_path / f"{batch}.json", each_us=100.0 * batch) for batch in (4, 8)]
    arguments = [
        "trace",
        "predict",
        *traces,
        "--to",
        "H100",
        "--batch",
        16,
        "--batch-recorded",
        "4,8",
        "--json",
    ]
    _, out, _ = told(capsys, *arguments)
    (seen,) = json.loads(out)["predictions"]
    assert seen["batch"] == 16 and seen["kernels_us"] == pytest.approx(10 * 1.25 * 1600)


def test_another_precision(trace: Path, capsys: pytest.CaptureFixture[str]):
    steps: list[float] = []
    for more in ([], ["--precision", "bf16"]):
        _, out, _ = told(capsys, "trace", "predict", trace, "--to", "A100-SXM4-80GB", "--json", *more)
        steps.append(json.loads(out)["predictions"][0]["step_us"])
    assert steps[1] < steps[0] / 2


def test_devices_without_a_precision_are_named_and_left_out(trace: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = told(capsys, "trace", "predict", trace, "--to", "T4,L4", "--precision", "bf16")
    assert (code, err) == (0, golden())
    assert "T4" in err and "bfloat16" in err
    assert figures(out, "L4")
    assert "T4 " not in out
    code, _, err = told(capsys, "trace", "predict", trace, "--to", "T4,P4", "--precision", "bf16")
    assert (code, err) == (2, golden())
    assert "bf16" in err


def test_a_device_whose_answer_breaks_a_law_is_left_out_and_the_others_stand(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    work_us = iter((1e12, 0.0))  # more than any step on the first device takes
    module = "daceml.prediction.recorded_runs.cross_device"
    monkeypatch.setattr(f"{module}.remaining_work_us", lambda graph: next(work_us))
    code, out, err = told(capsys, "trace", "predict", trace, "--to", "T4,L4")
    assert (code, err) == (0, golden())
    assert "left out [DML614]: T4" in err and "1000000000.000 ms" in err
    assert figures(out, "L4")
    assert "T4 " not in out


def test_measured_durations_come_from_the_database(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    operand = Operand(shape=(4096, 4096), dtype="float32")
    entry = Entry(
        operation=Operation(operator="aten::mm", operands=(operand, operand)),
        environment=Environment(device="L4"), duration=Duration(median_s=777e-6, mode="graph"),
        provenance="measured", source="a test", licence="BSD-3-Clause", date="2026-05-20",
    )  # fmt: skip
    with OpDatabase(tmp_path / "ops.db") as database:
        database.add(entry)
    _, out, _ = told(
        capsys, "trace", "predict", trace, "--to", "L4", "--database", tmp_path / "ops.db", "--json"
    )
    tasks = json.loads(out)["predictions"][0]["tasks"]
    assert [(task["us"], task["method"]) for task in tasks[:1]] == [(777.0, "measured")]


def test_another_model_s_runs_on_both_devices_correct_the_ratio(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pair = [written(tmp_path / "here.json"), written(tmp_path / "there.json", device="AMD Instinct MI300X")]
    arguments = [
        "trace",
        "predict",
        trace,
        "--to",
        "MI300X",
        "--json",
        "--reference",
        ",".join(map(str, pair)),
    ]
    _, out, _ = told(capsys, *arguments)
    (seen,) = json.loads(out)["predictions"]
    # the other model took as long on both
    assert {task["method"] for task in seen["tasks"]} == {"references"}
    assert seen["kernels_us"] == pytest.approx(5000.0)
    code, _, err = told(capsys, "trace", "predict", trace, "--to", "MI300X", "--reference", pair[0])
    assert (code, err) == (2, golden())
    assert err.startswith("[DML651] 1 ")


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--to", "H1000"], ["[DML641] ", "'H1000'"]),
        (["--to", ","], ["[DML651] ", "--to"]),
        (["--to", "L4", "--sort", "cost"], ["[DML651] ", "cost", "--price"]),
        (["--to", "L4", "--price", "L4=0.5"], ["[DML653] ", "'L4=0.5'"]),
        (["--to", "L4", "--batch", 16], ["[DML651] 0 ", "1 trace", "--batch-recorded"]),
        (["--to", "L4", "--batch-recorded", "8,16"], ["[DML651] 2 ", "1 trace"]),
        (["--to", "L4", "--batch-recorded", "many"], ["[DML651] ", "--batch-recorded 'many'"]),
        (["--to", "L4", "--precision", "int4"], ["[DML651] ", "'int4'"]),
        (["--to", "L4", "--host-factor", "0"], ["[DML651] ", "0.0 times"]),
        (["--to", "L4", "--database", "/no/such.db"], ["[DML623] ", "/no"]),
    ],
)
def test_refusals(arguments: list[Any], facts: list[str], trace: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = told(capsys, "trace", "predict", trace, *arguments)
    assert (code, out, err) == (2, "", golden())
    assert all(fact in err for fact in facts) and "  fix:   " in err


def test_the_nearest_name_is_proposed(trace: Path, capsys: pytest.CaptureFixture[str]):
    _, _, err = told(capsys, "trace", "predict", trace, "--to", "MI300Y")
    assert err == golden()
    assert "MI300X?" in err


def test_several_traces_are_for_another_batch(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = written(tmp_path / "other.json.gz")
    code, _, err = told(capsys, "trace", "predict", trace, other, "--to", "L4")
    assert (code, err) == (2, golden())
    assert err.startswith("[DML651] ") and "--batch" in err


def test_a_device_that_the_header_does_not_name_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    nameless = written(tmp_path / "run.json.gz", device=None)
    refused = told(capsys, "trace", "predict", nameless, "--to", "L4")[2]
    assert refused == golden()
    assert refused.startswith("[DML652] ") and "--from" in refused
    code, out, _ = told(capsys, "trace", "predict", nameless, "--to", "L4", "--from", "h100")
    assert code == 0 and "H100-SXM5-80GB" in out.splitlines()[0]


def test_models_are_told_from_traces():
    models = ["model.py:Net", "package.module:Net", "net.onnx", "/some/where/net.onnx"]
    assert all(map(is_model, models))
    assert not any(map(is_model, ["run.json", "/c:/run.json.gz", "runs/rank0.pt.trace.json.gz"]))


def test_a_model_is_refused_with_the_command_for_models(capsys: pytest.CaptureFixture[str]):
    code, _, err = told(capsys, "trace", "predict", "model.py:Net", "run.json", "--to", "H100")
    assert (code, err) == (2, golden())
    assert "daceml predict model.py:Net" in err
