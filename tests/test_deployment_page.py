"""The script, the command and the C++ program of docs/deployment.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import told

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "deployment.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_script_command_and_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (script,), (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), _blocks("cpp")
    exec(compile(script, "deployment.md", "exec"), {})
    capsys.readouterr()
    (tmp_path / "net.py").write_text(script.split("scorer, x =")[0])
    (command,) = re.findall(r"^daceml (export .*)$", PAGE, re.MULTILINE)
    (compiler,) = re.findall(r"^g\+\+ .*$", PAGE, re.MULTILINE)
    words = command.replace("-o scorer", "-o again").split()
    code, out, err = told(capsys, *words, "--quiet")
    assert code == 0, err
    assert "SHA-256" in out
    (tmp_path / "again" / "main.cpp").write_text(program)
    subprocess.run(compiler, shell=True, cwd=tmp_path / "again", check=True)
    run = subprocess.run(["./main"], cwd=tmp_path / "again", capture_output=True, text=True, check=True)
    assert sum(map(float, run.stdout.split())) == pytest.approx(1, abs=1e-5)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
