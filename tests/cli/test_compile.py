"""`daceml compile`: what it builds, prints and writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dace
import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner, Result

from daceml.cli import saved_model
from daceml.cli.main import app
from daceml.module.onnx_model import ONNXModel
from tests.cli.models import Embedded
from tests.support.golden import golden
from tests.support.onnx_files import save_sum

FILE = str(Path(__file__).with_name("models.py"))


@pytest.fixture(autouse=True)
def _search_path(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compile", *map(str, arguments)])


def test_what_was_built_is_printed_and_the_second_time_comes_from_the_cache():
    first = run(f"{FILE}:Mish", "-i", "4,6")
    assert first.exit_code == 0, first.output
    lines = first.stdout.splitlines()
    assert lines[1] == "  inputs:      x (4, 6)"
    assert "  kernels:     1, called 1 times" in lines
    assert "  onnxruntime: 0 nodes" in lines
    again = run(f"{FILE}:Mish", "-i", "4,6")
    assert again.stdout.startswith("Mish: ") and "cache" in again.stdout.splitlines()[0]


def test_json_on_stdout_is_nothing_but_json():
    done = run(f"{FILE}:Talkative", "-i", "3", "--json", "-")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["model"] == "Talkative"
    assert record["counts"]["kernels"] == 1
    assert record["inputs"] == [{"name": "x", "shape": [3]}]
    assert Path(record["program"], "program.so").is_file()
    assert record["size_bytes"] > Path(record["program"], "program.so").stat().st_size
    assert "forward is traced" in done.stderr


def test_files_are_written_and_can_be_used(tmp_path: Path):
    files = {option: tmp_path / f"net.{option}" for option in ("onnx", "sdfg", "json")}
    options = [part for option, path in files.items() for part in (f"--{option}", path)]
    done = run(f"{FILE}:Embedded", "-i", "5:int64=0..9", *options)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files.values())
    index = torch.tensor([9, 0, 3])
    onnx.checker.check_model(onnx.load(files["onnx"]))
    assert ONNXModel(files["onnx"])(torch.tensor([9, 0, 3, 1, 1]))[:3].equal(Embedded()(index))
    assert dace.SDFG.from_file(str(files["sdfg"])).states()
    record = json.loads(files["json"].read_text())
    assert record["files"] == {option: str(path) for option, path in files.items()}


def test_large_data_goes_into_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(saved_model, "INLINE_BYTES", 16)
    done = run(f"{FILE}:make_wide", "-i", "3,32", "--onnx", tmp_path / "net.onnx")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    stored = onnx.load(tmp_path / "net.onnx", load_external_data=False)
    (weight,) = [t for t in stored.graph.initializer if t.name == "weight"]
    assert weight.data_location == onnx.TensorProto.EXTERNAL
    assert tuple(ONNXModel(tmp_path / "net.onnx")(torch.ones(3, 32)).shape) == (3, 16)


def test_inputs_from_a_file(tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=np.ones((2, 5), dtype=np.float32))
    done = run(f"{FILE}:Mish", "--inputs", tmp_path / "x.npz", "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["inputs"] == [{"name": "x", "shape": [2, 5]}]


def test_an_onnx_file_keeps_its_symbols_unless_dim_fixes_them(tmp_path: Path):
    file = save_sum(tmp_path)
    symbolic = json.loads(run(file, "--json", "-").stdout)
    assert (symbolic["symbols"], symbolic["inputs"][0]["shape"]) == (["N"], ["N", 3])
    fixed = json.loads(run(file, "--dim", "N=7", "--json", "-").stdout)
    assert (fixed["symbols"], fixed["inputs"][0]["shape"]) == ([], [7, 3])
    refused = run(file, "--dim", "M=7").stderr
    assert refused == golden()
    assert refused.startswith("[DML204] ") and "'M'" in refused and ": N" in refused


@pytest.mark.parametrize("option", [("--input", "3"), ("--dynamic",), ("--train",)])
def test_options_that_an_onnx_file_does_not_take(tmp_path: Path, option: tuple[str, ...]):
    done = run(save_sum(tmp_path), *option)
    assert (done.exit_code, done.stderr) == (2, golden())
    assert done.stderr.startswith("[DML501] ") and option[0] in done.stderr


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ((f"{FILE}:Mish",), ["[DML501] ", "Mish", "0 inputs"]),
        ((f"{FILE}:Sized",), ["[DML501] ", f"{FILE}:Sized"]),
        ((f"{FILE}:make", "-i", "3,3"), ["[DML501] ", "given inputs", "Linear"]),
        ((f"{FILE}:Mish", "-i", "3", "--onnx", "/no/such/x"), ["[DML502] ", "--onnx /no/such/x "]),
        ((f"{FILE}:Mish", "--inputs", "no.pt"), ["[DML501] ", "--inputs no.pt "]),
        (("no.onnx",), ["[DML202] ", "no.onnx"]),
    ],
)
def test_bad_requests_are_errors_of_one_form(arguments: tuple[str, ...], facts: list[str]):
    done = run(*arguments)
    what = done.stderr.splitlines()[0]
    assert (done.exit_code, what) == (2, golden())
    assert all(fact in what for fact in facts), done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_a_broken_onnx_file(tmp_path: Path):
    (tmp_path / "x.onnx").write_text("hello")
    done = run(tmp_path / "x.onnx")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[0] == golden()
    assert done.stderr.startswith("[DML202] ") and "x.onnx" in done.stderr and "5 bytes" in done.stderr
