"""`daceml predict`: a table of devices from shapes alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from daceml.cli.predict import predict
from daceml.cli.prediction_targets import Criterion
from daceml.errors import (
    CaptureError,
    DacemlError,
    DeviceError,
    ModelReferenceError,
    OnnxShapesError,
    PredictionError,
    PriceError,
    StepPredictionError,
)
from tests.support.command_line import told as commanded
from tests.support.golden import golden, raises
from tests.support.onnx_files import save_sum

WIDE = "tests.cli.models:make_wide"
LOOKUP = "tests.cli.models:Embedded"


def told(capsys: pytest.CaptureFixture[str], *args: Any, **options: Any) -> list[dict[str, Any]]:
    predict(*args, as_json=True, quiet=True, **options)
    return json.loads(capsys.readouterr().out)["predictions"]


def test_devices_are_sorted_by_the_criterion(capsys: pytest.CaptureFixture[str]):
    ask = {
        "to": "L4,H100,A100",
        "inputs": ["65536,32"],
        "price": ["H100=2.95@2026-05-20", "L4=0.5@2026-05-20"],
    }
    by_time = told(capsys, WIDE, **ask)
    assert [one["device"] for one in by_time] == ["H100-SXM5-80GB", "A100-SXM4-80GB", "L4"]
    by_cost = told(capsys, WIDE, sort=Criterion.COST, **ask)
    assert by_cost[-1]["device"] == "A100-SXM4-80GB", "without a price it comes last"
    bought = [one["samples_per_usd"] for one in by_cost[:2]]
    assert bought == sorted(bought, reverse=True)
    assert by_cost[0]["price"] == {"usd_per_hour": by_cost[0]["price"]["usd_per_hour"], "date": "2026-05-20"}
    rates = [one["samples_per_s"] for one in told(capsys, WIDE, sort=Criterion.THROUGHPUT, **ask)]
    assert rates == sorted(rates, reverse=True)


def test_the_table_says_how_sure_each_row_is(capsys: pytest.CaptureFixture[str]):
    predict(WIDE, to="H100,L4", inputs=["8,32"], price=["L4=0.5@2026-05-20"], quiet=True)
    text = capsys.readouterr().out
    assert "make_wide" not in text
    lines = text.splitlines()
    assert lines[0] == golden()
    assert lines[0].startswith("Linear: ") and "fp32" in lines[0]
    assert "roofline 100%" in " ".join(text.split())
    assert "host" in text and "note: " in text and "8 us, 4 to 20" in text
    (price,) = [line for line in lines if "2026-05-20" in line]
    assert price == golden()
    assert "L4" in price and "0.5" in price


def test_kinds_and_layers_are_tables_of_their_own_and_layers_alike_share_a_row(
    capsys: pytest.CaptureFixture[str],
):
    predict("tests.cli.models:make_repeated", to="H100", inputs=["4096,32"], quiet=True)
    kinds, layers = capsys.readouterr().out.split("layer on H100-SXM5-80GB")
    assert "kind of work on H100-SXM5-80GB" in kinds
    for rows in (kinds, layers):
        assert sum(float(share) for share in re.findall(r"([\d.]+)%$", rows, re.MULTILINE)) == pytest.approx(
            100, abs=0.5
        )
    (row,) = [line for line in layers.splitlines() if " and alike" in line]
    assert row.split()[:4] == ["1", "and", "alike", "3"]  # the first one has no gradient of its input


def test_a_note_that_is_not_about_every_device_names_its_own(capsys: pytest.CaptureFixture[str]):
    predict(WIDE, to="A100-SXM4-80GB,L4", inputs=["8,32"], devices=8, quiet=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "note: A100-SXM4-80GB: collectives reach 75%" in text
    assert "note: L4: collectives reach 5%" in text
    assert "note: the float32 rate of L4 was not measured" in text
    assert "note: buckets are made by torch's rule" in text


def test_a_device_whose_answer_breaks_a_law_is_left_out_and_the_others_stand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    work_us = iter((1e12, 0.0))  # of three steps; more than any on the first device takes
    monkeypatch.setattr(
        "daceml.prediction.model_steps.step_prediction.remaining_work_us", lambda graph: next(work_us)
    )
    predict(WIDE, to="H100,L4", inputs=["8,32"], as_json=True, quiet=True)
    out, err = capsys.readouterr()
    assert [one["device"] for one in json.loads(out)["predictions"]] == ["L4"]
    assert (
        err.startswith("left out [DML614]: H100-SXM5-80GB: ")
        and "the remaining work takes 333333333.333 ms" in err
    )


def test_a_batch_is_the_first_size_of_every_input(capsys: pytest.CaptureFixture[str]):
    (small,) = told(capsys, WIDE, to="H100", inputs=["8,32"])
    (large,) = told(capsys, WIDE, to="H100", inputs=["8,32"], batch=1024)
    (same,) = told(capsys, WIDE, to="H100", inputs=["1024,32"])
    assert (small["samples"], large["samples"]) == (8, 1024)
    assert large["device_us"] == same["device_us"] > small["device_us"]


def test_inference_and_several_devices(capsys: pytest.CaptureFixture[str]):
    (call,) = told(capsys, LOOKUP, to="A100", inputs=["64:int64"], inference=True)
    assert (call["trains"], call["memory"]["gradients"]) == (False, 0)
    (step,) = told(capsys, LOOKUP, to="A100", inputs=["64:int64"], devices=4, optimizer="sgd")
    assert (step["devices"], step["samples"]) == (4, 256)
    assert "the network" in step["errors_us"]
    assert step["memory"]["buckets"] == step["memory"]["gradients"] == 10 * 4 * 4


def test_precision_and_database_reach_the_prediction(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    import torch

    from daceml.operations.database.records import Duration, Entry, Environment
    from daceml.operations.database.store import OpDatabase
    from daceml.prediction.model_steps.predict_step import captured
    from tests.cli.models import make_wide

    step = captured(make_wide(), torch.empty(4096, 32), precision="bf16")
    (product,) = [one for one in step.operations if one.operation.operator == "aten::addmm"]
    with OpDatabase(tmp_path / "rows.db") as database:
        database.add(
            Entry(
                operation=product.operation,
                environment=Environment(device="H100"),
                duration=Duration(median_s=5e-3),
                provenance="measured",
                source="a test",
                licence="CC0-1.0",
                date="2026-05-20",
            )
        )
    ask = {"to": "H100", "inputs": ["4096,32"], "precision": "bf16"}
    (known,) = told(capsys, WIDE, database=tmp_path / "rows.db", **ask)
    (alone,) = told(capsys, WIDE, **ask)
    assert known["by_basis"]["measured"] > 0.9
    assert known["by_class_us"]["product"] > 5000 > alone["by_class_us"]["product"]


def test_an_onnx_file_has_named_sizes(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = str(save_sum(tmp_path))
    (by_dim,) = told(capsys, path, to="H100", dims=["N=1000"], inference=True)
    (by_batch,) = told(capsys, path, to="H100", batch=1000, inference=True)
    assert by_dim == by_batch
    assert by_dim["samples"] == 1000


@pytest.mark.parametrize(
    ("options", "kind", "fact"),
    [
        ({}, ModelReferenceError, "--input"),
        ({"inputs": ["8,32"], "to": " , "}, PredictionError, "--to"),
        ({"inputs": ["8,32"], "to": "L4", "sort": "cost"}, PredictionError, "cost"),
        ({"inputs": ["8,32"], "to": "H1000"}, DeviceError, "'H1000'"),
        ({"inputs": ["8,32"], "batch": 0.5}, StepPredictionError, "--batch 0.5"),
        ({"inputs": ["8,32"], "dims": ["N=3"]}, ModelReferenceError, "--dim"),
        ({"inputs": ["8,32"], "precision": "fp8"}, CaptureError, "'fp8'"),
        ({"inputs": ["8,32"], "devices": 16}, StepPredictionError, "16 devices"),
        ({"inputs": ["8,32"], "price": ["H100=2"]}, PriceError, "'H100=2'"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_reason(options: Any, kind: type[DacemlError], fact: str):
    with raises(kind, fact):
        predict(WIDE, **{"to": "H100", "quiet": True, **options})


def test_a_model_that_fails_with_the_shapes_of_the_call_is_refused():
    with raises(ModelReferenceError, "[8, 33]", "-i SHAPE", "float32 (8, 33)", exact=False) as refusal:
        predict(WIDE, to="H100", quiet=True, inputs=["8,33"])
    assert [refusal.value.what, refusal.value.fix] == [golden(), golden()]


def test_a_file_without_a_named_batch_takes_no_other(tmp_path: Path):
    import onnx

    path = save_sum(tmp_path)
    model = onnx.load(path)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, path)
    with raises(OnnxShapesError, path, "--batch"):
        predict(str(path), to="H100", batch=8, inference=True, quiet=True)


def test_a_constructor_that_needs_values_is_made_with_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    source = tmp_path / "depends.py"
    source.write_text(
        "import torch\n"
        "class Depends(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(int(torch.tensor(8.0).item()), 4)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x)\n"
        "class Keeps(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer, self.shift = torch.nn.Linear(8, 4), torch.ones(4)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x) + self.shift\n"
    )
    for name in ("Depends", "Keeps"):
        (seen,) = told(capsys, f"{source}:{name}", to="H100", inputs=["16,8"])
        assert seen["samples"] == 16


def test_the_command_takes_models(capsys: pytest.CaptureFixture[str]):
    words = [
        "predict",
        WIDE,
        "--to",
        "H100,L4",
        "--input",
        "8,32",
        "--batch",
        64,
        "--price",
        "L4=0.5@2026-05-20",
    ]
    code, out, err = commanded(capsys, *words, "--devices", 2, "--optimizer", "sgd", "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == golden()
    assert out.startswith("Linear: ") and "fp32" in out.splitlines()[0]
    code, out, _ = commanded(
        capsys, *words, "--inference", "--json", "--optimizer", "none", "--precision", "bf16"
    )
    first = json.loads(out)["predictions"][0]
    assert (code, first["trains"], first["samples"], first["precision"]) == (0, False, 64, "bf16")
