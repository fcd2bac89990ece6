from __future__ import annotations

import sys
from pathlib import Path

import pytest

from daceml.cli.trace.profile import Launcher, command_of, traces_in
from daceml.errors import LaunchError
from tests.support.command_line import told
from tests.support.golden import golden, raises

# What a script does that records itself, as far as this command sees it
WRITES = """
import os, sys
from pathlib import Path
from daceml.config import config
rank = os.environ.get("RANK", "0")
for name in sys.argv[1:]:
    (Path(config().traces) / f"{name}_rank{rank}.json").write_text("{}")
"""


def script(folder: Path, text: str = WRITES) -> Path:
    file = folder / "train.py"
    file.write_text(text)
    return file


def test_the_traces_of_a_script_are_collected(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "traces"
    code, printed, _ = told(capsys, "trace", "profile", "-o", out, script(tmp_path), "run")
    assert code == 0
    assert [path.name for path in traces_in(out)] == ["run_rank0.json"]
    assert printed.splitlines()[-1] == golden()
    assert f"daceml trace replay {out / 'run_rank0.json'}" in printed


def test_options_behind_the_script_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _, _ = told(
        capsys, "trace", "profile", "--out", tmp_path / "t", script(tmp_path), "--json", "--ranks"
    )
    assert code == 0
    assert len(traces_in(tmp_path / "t")) == 2


def test_ranks_are_started_by_torchrun_or_mpirun(monkeypatch: pytest.MonkeyPatch):
    assert command_of(Launcher.TORCHRUN, 1) == [sys.executable]
    assert command_of(Launcher.TORCHRUN, 4)[1:] == [
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr("daceml.cli.trace.profile.which", lambda _: "/usr/bin/mpirun")
    assert command_of(Launcher.MPIRUN, 2) == ["/usr/bin/mpirun", "-n", "2", "/nowhere/python"]
    monkeypatch.setattr("daceml.cli.trace.profile.which", lambda _: None)
    with raises(LaunchError, "mpirun", "/nowhere/python", "pip install 'daceml[mpi]'"):
        command_of(Launcher.MPIRUN, 2)


def test_a_script_that_records_nothing_is_told_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "traces"
    file = script(tmp_path)
    code, _, err = told(capsys, "trace", "profile", "--out", out, file)
    assert code == 2
    assert err == golden()
    assert err.startswith("[DML664] ") and f"where: {out}\n" in err
    for fact in (str(file), "1 rank", 'daceml.Recorder("traces", model)', "@daceml.profile(recorder)"):
        assert fact in err


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    failing = script(tmp_path, "raise SystemExit(3)")
    code, _, err = told(capsys, "trace", "profile", "--output", tmp_path / "traces", failing)
    assert (code, err.splitlines()[0]) == (2, golden())
    assert str(failing) in err and err.splitlines()[0].endswith(" 3")
    code, _, err = told(capsys, "trace", "profile", tmp_path / "absent.py")
    assert (code, err) == (2, golden())
    assert str(tmp_path / "absent.py") in err
    (tmp_path / "traces" / "run_rank0.json").write_text("{}")
    code, _, err = told(capsys, "trace", "profile", "--output", tmp_path / "traces", failing)
    assert (code, err) == (2, golden())
    assert str(tmp_path / "traces") in err and "run_rank0.json" in err and "--output" in err
