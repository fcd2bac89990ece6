"""The command as a whole: exit codes, JSON, errors as their text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from daceml.cli.main import app
from tests.support.golden import golden
from tests.support.onnx_files import save_sum

FILE = str(Path(__file__).with_name("models.py"))
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _search_path(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def daceml(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_explain_prints_a_report():
    done = daceml("explain", f"{FILE}:Mish", "--input", "4,6")
    assert done.exit_code == 0, done.output
    mode, title, *_ = done.stdout.splitlines()
    assert mode == "Mish, a forward pass; eval mode (--train: training mode)"
    assert title == golden()
    assert all(fact in title for fact in ("Mish", "1 call", "1 kernel"))


def test_explain_prints_json():
    done = daceml("explain", f"{FILE}:Mish", "-i", "4,6", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counts"]["kernels"] == 1


def test_verify_passes_with_0_and_fails_with_1():
    passed = daceml("verify", f"{FILE}:Mish", "--input", "4,6", "--seeds", "2")
    assert passed.exit_code == 0, passed.output
    assert "2 of 2" in passed.stdout
    failed = daceml("verify", f"{FILE}:Wrong", "--input", "4,6", "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["passed"] is False


def test_verify_compares_gradients_of_what_trains():
    done = daceml("verify", f"{FILE}:Mish", "--input", "4,6", "--train")
    assert done.exit_code == 0, done.output
    assert "seed0.gradient of input[0]" in done.stdout


def test_verify_takes_an_onnx_file(tmp_path: Path):
    done = daceml("verify", str(save_sum(tmp_path)), "--dim", "N=5")
    assert done.exit_code == 0, done.output
    title = done.stdout.splitlines()[0]
    assert title == golden()
    assert all(fact in title for fact in ("sum.onnx", "float64", "1"))


def test_an_error_is_its_text_on_stderr_and_2():
    done = daceml("explain", f"{FILE}:Mitsch", "--input", "4")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == golden()
    assert done.stderr.startswith("[DML501] ") and FILE in done.stderr and "Mitsch" in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback_too():
    done = daceml("explain", f"{FILE}:Mitsch", "--input", "4", "--debug")
    assert done.exit_code == 2
    assert "Traceback (most recent call last)" in done.stderr


def test_a_wrong_command_is_2():
    assert daceml("explane").exit_code == 2
    assert daceml("verify", f"{FILE}:Mish", "--seeds", "0").exit_code == 2


def test_a_wrong_environment_variable_is_told_by_every_command():
    done = subprocess.run(
        [sys.executable, "-m", "daceml.cli.main", "cache", "ls"],
        cwd=ROOT,
        env={**os.environ, "DACEML_CASHE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == golden()
    assert done.stderr.startswith("[DML001] ") and "DACEML_CASHE" in done.stderr


def test_the_version_is_printed_by_both_spellings():
    from daceml import __version__

    assert daceml("--version").stdout == f"daceml {__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "daceml", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"daceml {__version__}\n"


def test_help_names_every_command():
    text = daceml("--help").stdout
    assert all(name in text for name in ("doctor", "compile", "explain", "verify", "cache"))


@pytest.mark.parametrize("command", ["", "compile", "trace", "trace whatif", "cache clear"])
def test_help_shows_no_type_of_a_flag(command: str):
    text = daceml(*command.split(), "--help").stdout
    assert "--help" in text and "<bool>" not in text


def test_what_is_no_refusal_still_has_the_form_of_one(monkeypatch: pytest.MonkeyPatch):
    import daceml as package

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("something\nelse")

    monkeypatch.setattr(package, "explain", fail)
    done = daceml("explain", f"{FILE}:Mish", "--input", "4")
    assert done.exit_code == 2
    first, where, *_ = done.stderr.splitlines()
    assert first == golden()
    assert first.startswith("[DML000] ") and f"where: {__file__}:" in where
    assert "  why:   RuntimeError: something\n" in done.stderr and "Traceback" not in done.stderr
    assert "Traceback" in daceml("explain", f"{FILE}:Mish", "--input", "4", "--debug").stderr


def test_what_the_models_own_code_raises_is_shown_as_such():
    done = daceml("explain", f"{FILE}:Particular", "--input", "4")
    assert done.exit_code == 2
    first, where, why, *notes, fix = done.stderr.splitlines()
    note = "\n".join(notes)
    assert [first, note, fix] == [golden(), golden(), golden()]
    assert first.startswith("[DML000] ") and f"where: {FILE}:" in where
    assert "ValueError: x has 1 dimensions instead of 2" in why
    assert "Particular" in note and "--debug" in fix


def test_too_little_memory_is_said_in_one_form(monkeypatch: pytest.MonkeyPatch):
    import daceml as package

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(package, "verify", fail)
    done = daceml("verify", f"{FILE}:Mish", "--input", "4")
    assert done.exit_code == 2
    assert done.stderr == golden()
    assert done.stderr.startswith("[DML000] ") and "memory" in done.stderr


def test_verify_compares_intermediate_values():
    done = daceml("verify", f"{FILE}:Mish", "--input", "4,6", "--intermediate", "--json")
    assert done.exit_code == 0, done.output
    names = [value["name"] for value in json.loads(done.stdout)["diagnosis"]["values"]]
    assert names == ["softplus", "tanh", "mul"]


def test_explain_lists_every_refusal():
    done = daceml("explain", f"{FILE}:Mish", "--input", "4,6", "--all")
    text = " ".join(done.stdout.split())  # lines end where a terminal ends
    found = re.search(r"schedule_maps, mul \(models.py:\d+\), <0.001 MB: (.*? one thread runs them)", text)
    assert found and found[1] == golden()
    assert "24" in found[1]


def test_explain_of_training_shows_both_passes():
    done = daceml("explain", f"{FILE}:Mish", "-i", "4,6", "--train")
    assert done.exit_code == 0, done.output
    mode, *_ = done.stdout.splitlines()
    assert mode == "Mish, a forward pass; training mode (without --train: eval mode)"  # nothing to train
    done = daceml("explain", f"{FILE}:make", "-i", "3,4", "--train")
    assert done.exit_code == 0, done.output
    mode, *_ = done.stdout.splitlines()
    assert mode == "Linear, a forward and a backward pass; training mode (without --train: eval mode)"
    assert "\nbackward pass: " in done.stdout
    assert "MB unique: bytes that a step touches" in done.stdout
