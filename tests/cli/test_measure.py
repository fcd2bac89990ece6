"""`daceml measure`, with times that are planted where they would be measured."""

from __future__ import annotations

import json
import re
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest

from daceml.operations.database.records import Duration
from daceml.operations.database.store import OpDatabase
from daceml.operations.measuring import campaign, executors
from tests.support.command_line import told
from tests.support.golden import golden

MODELS = Path(__file__).parent / "models.py"
PLAN = """
samples = 2
[[operation]]
operator = "aten::mm"
sizes = { m = [1, 64], k = [1, 64] }
operands = [["m", "k"], ["k", 3]]
directions = ["forward", "backward"]
[[operation]]
operator = "aten::nonzero"
samples = 1
operands = [[4]]
"""


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(call: Any, settings: Any, *, direction: str) -> Duration:
        from daceml.errors import MeasurementError

        if call.operator == "aten::nonzero":
            raise MeasurementError("aten::nonzero has no time of its own", why="its shape follows from data")
        return Duration(median_s=len(call.operator) * 1e-6, samples=15, mad_s=1e-7, mode=settings.mode)

    def in_process(workers: int) -> Any:
        def made() -> Executor:
            return executors.InProcess()

        return made

    monkeypatch.setattr(campaign, "measure", measure)
    monkeypatch.setattr(executors, "processes", in_process)


def counts(out: str) -> list[str]:
    """Operations that were measured, known before, refused and left, as a command says last."""
    said = " ".join(out.split())
    return list(re.findall(r"(\d+) measured, (\d+) known before, (\d+) refused, (\d+) left", said)[-1])


def test_the_operations_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "m.db"
    call = ("measure", f"{MODELS}:make", "-i", "8,4", "-o", file)
    code, out, _ = told(capsys, *call)
    assert code == 0
    said = " ".join(out.split())
    assert "aten::addmm forward 11.00 0.10 2 8x4 4x2" in said
    assert said[said.index("2 measured, ") :] == golden()
    assert counts(out) == ["2", "0", "0", "0"] and str(file) in out
    with OpDatabase(file) as database:
        assert len(database) == 2
    _, again, _ = told(capsys, *call)
    assert counts(again) == ["0", "2", "0", "0"]


def test_the_backward_pass_with_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = told(
        capsys, "measure", f"{MODELS}:make", "-i", "8,4", "--train", "--json", "-o", tmp_path / "m.db"
    )
    assert code == 0
    calls = {one["operation"]["operator"]: one for one in json.loads(out)["calls"]}
    assert calls["aten::addmm"]["forward"] == 1 and calls["aten::mm"]["backward"] == 1


def test_a_plan_with_an_operation_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    code, out, _ = told(capsys, "measure", plan, "-o", tmp_path / "m.db")
    assert code == 0
    said = " ".join(out.split())
    assert "aten::nonzero: aten::nonzero has no time of its own: its shape follows from data" in said
    assert counts(out) == ["4", "0", "1", "0"]


def test_a_budget_that_is_spent_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    _, out, _ = told(capsys, "measure", plan, "--budget", "0.001", "-o", tmp_path / "m.db")
    assert out.splitlines()[-1] == golden()


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["x.onnx"], ["[DML657] ", "x.onnx"]),
        (["x.onnx", "--train"], ["[DML501] ", "x.onnx", "--train"]),
        ([f"{MODELS}:make", "--dim", "N=2"], ["[DML001] ", "--dim", ".onnx"]),
        (["plan.toml"], ["[DML632] ", "plan.toml"]),
        ([f"{MODELS}:make", "--mode", "hot"], ["[DML001] ", "--mode hot", "eager"]),
        ([f"{MODELS}:make", "--mode", "graph"], ["[DML631] ", "cpu", "graph"]),
        ([f"{MODELS}:make", "--device", "gpu"], ["[DML001] ", "--device gpu", "cuda"]),
        ([f"{MODELS}:make", "--budget", "soon"], ["[DML001] ", "--budget 'soon'"]),
        (["plan.toml", "--train"], ["[DML001] ", "--input, --inputs and --train"]),
    ],
)
def test_requests_that_cannot_be_carried_out(
    arguments: list[str],
    facts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    code, out, err = told(capsys, "measure", *arguments, "-o", tmp_path / "m.db")
    assert (code, out, err) == (2, "", golden())
    assert all(fact in err for fact in facts) and "fix:" in err
    assert not (tmp_path / "m.db").exists()


def test_a_device_that_is_not_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = (f"{MODELS}:make", "--device", "cuda:99", "-o", tmp_path / "m.db")
    code, out, err = told(capsys, "measure", *arguments)
    assert (code, out, err.splitlines()[0]) == (2, "", golden())
    assert err.startswith("[DML002] ") and "cuda:99" in err and "fix:" in err
    assert not (tmp_path / "m.db").exists()


def test_the_output_of_somebody_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n")
    code, _, err = told(capsys, "measure", f"{MODELS}:make", "-i", "8,4", "-o", file)
    assert code == 2 and "[DML621]" in err
    assert file.read_text() == "my notes\n"
