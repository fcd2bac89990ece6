"""`daceml doctor`: a line a check, a fix where something is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from daceml.cli import checks, doctor
from daceml.cli.checks import check_package, examine, openmp_runtimes
from daceml.cli.finding import Finding
from daceml.cli.main import app
from daceml.config import config
from daceml.devices.measured import CopyRate, MeasuredDevice
from daceml.errors import EnvironmentProblem
from tests.support.golden import golden


def test_this_machine_can_compile_and_run():
    done = CliRunner().invoke(app, ["doctor", "--json"])
    findings = {row["title"]: row for row in json.loads(done.stdout)}
    assert [row for row in findings.values() if row["status"] == "fail"] == []
    assert done.exit_code == 0
    assert {"Python", "torch", "dace", "onnx", "onnxruntime", "C++ compiler", "cmake"} <= set(findings)
    assert {"OpenMP", "threads", "cache", "launcher"} <= set(findings)
    assert findings["launcher"]["status"] == "ok"
    assert findings["CUDA compiler"]["status"] == "ok"  # where there is none, too


def test_lines_carry_no_colour_where_nobody_sees_it(monkeypatch: pytest.MonkeyPatch):
    rows = (
        ("torch", lambda: ("ok", "2.13.0", "")),
        ("cache", lambda: ("fail", "/x cannot be written", "name another folder in DACEML_CACHE")),
    )
    monkeypatch.setattr(doctor, "CHECKS", rows)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert done.stdout == (
        "ok   torch:           2.13.0\n"
        "fail cache:           /x cannot be written\n"
        "     fix: name another folder in DACEML_CACHE\n"
    )


def test_a_check_that_breaks_is_a_finding():
    def problem() -> tuple[checks.Status, str, str]:
        raise EnvironmentProblem("there is no C++ compiler 'g+++'", why="it is needed", fix="install g++")

    def accident() -> tuple[checks.Status, str, str]:
        raise OSError("disk on fire")

    assert examine("compiler", problem) == Finding(
        title="compiler",
        status="fail",
        found="there is no C++ compiler 'g+++': it is needed",
        fix="install g++",
    )
    assert examine("disk", accident).found == "OSError: disk on fire"


def test_a_wrong_option_is_told_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_CASHE", "/x")
    config.cache_clear()
    done = CliRunner().invoke(app, ["doctor"])
    config.cache_clear()
    assert done.exit_code == 1
    named = [line for line in done.stdout.splitlines() if "DACEML_CASHE" in line]
    assert named == [golden(), golden()]
    assert named[1].startswith("     fix: ") and "DACEML_CACHE" in named[1]
    (cache,) = [line for line in done.stdout.splitlines() if line.startswith("fail cache: ")]
    assert cache == golden()


def test_a_missing_or_old_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(checks.SUPPORTED, "no-such-package", ("1.0", "2.0"))
    assert check_package("no-such-package")() == (
        "fail",
        golden(),
        "pip install 'no-such-package>=1.0,<2.0'",
    )
    monkeypatch.setitem(checks.SUPPORTED, "torch", ("99", ""))
    status, found, fix = check_package("torch")()
    assert (status, fix) == ("warn", "pip install 'torch>=99'")
    assert found.removeprefix(f"{torch.__version__}: ") == golden()
    assert "99" in found


def test_cmake_beside_python_and_not_in_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    monkeypatch.setattr(checks.sys, "executable", str(tmp_path / "python"))
    assert checks.check_cmake()[2] == "pip install cmake"
    (tmp_path / "cmake").touch()
    status, found, fix = checks.check_cmake()
    assert (status, found, fix) == ("warn", golden(), golden())
    assert "PATH" in found and str(tmp_path) in fix and "PATH" in fix


def test_an_old_cmake_says_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = tmp_path / "cmake"
    old.write_text("#!/bin/sh\necho cmake version 3.25.1\n")
    old.chmod(0o755)
    monkeypatch.setattr(checks.shutil, "which", lambda name: str(old))
    status, found, fix = checks.check_cmake()
    assert status == "warn" and "3.25.1" in found and "only sdfg.compile() of dace needs it" in found and fix


def test_openmp_runtimes_are_told_apart_by_path():
    maps = (
        "7f00-7f01 r-xp 00000000 00:00 1 /venv/torch/lib/libgomp.so.1\n"
        "7f01-7f02 r--p 00000000 00:00 1 /venv/torch/lib/libgomp.so.1\n"
        "7f02-7f03 r-xp 00000000 00:00 2 /usr/lib/libiomp5.so\n"
        "7f03-7f04 rw-p 00000000 00:00 0\n"
    )
    assert openmp_runtimes(maps) == ["/usr/lib/libiomp5.so", "/venv/torch/lib/libgomp.so.1"]


PROCESSOR = MeasuredDevice(
    name="A processor", kind="cpu", threads=2, cache_bytes=1 << 20,
    copies=(CopyRate(size_bytes=1 << 24, bytes_per_s=12.5e9, spread=0.02),), call_us=1.5,
    versions={"daceml": "1"}, date="2026-11-26",
)  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor, without the seconds that it takes; nothing is checked."""
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr("daceml.operations.measuring.processor.measure_processor", lambda: PROCESSOR)


@pytest.mark.usefixtures("measured")
def test_what_devices_reach():
    done = CliRunner().invoke(app, ["doctor", "--measure", "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["findings"] == []
    assert MeasuredDevice.from_dict(found["devices"][0]) == PROCESSOR
    assert "12.5 GB/s" in CliRunner().invoke(app, ["doctor", "--measure"]).stdout


@pytest.mark.usefixtures("measured")
def test_a_device_that_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setitem(sys.modules, "cupy", None)  # as if it were not installed
    done = CliRunner().invoke(app, ["doctor", "--measure"])
    assert done.exit_code == 0
    assert "warn cuda:0: " in done.stdout
    assert "pip install 'daceml[gpu]'" in done.stdout
