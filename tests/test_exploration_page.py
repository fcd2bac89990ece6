"""The script and the commands of docs/exploration.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_line import told

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "exploration.md").read_text(encoding="utf-8")
SCRIPT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.mark.slow
def test_the_script_gives_a_faster_module_that_is_right():
    variables: dict[str, object] = {}
    exec(compile(SCRIPT, "exploration.md", "exec"), variables)
    assert "standard recipe" in str(variables["explored"])


@pytest.mark.slow
def test_commands_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "daceml.runtime.timing.comparison.FOREIGN_LIMIT", float("inf")
    )  # exit code 3 otherwise
    (tmp_path / "net.py").write_text(SCRIPT.split("block, x =")[0])
    commands = [c.split() for c in re.findall(r"^daceml (.*)$", PAGE, re.MULTILINE)]
    assert [command[0] for command in commands] == ["explore", "whatif", "whatif", "whatif", "whatif"]
    explore, without, _, added, elsewhere = commands
    # the last budget counts
    for words in ([*explore, "--measurements", "0", "--budget", "15s"], without, added, elsewhere):
        code, out, err = told(capsys, *words, "--quiet")
        assert code == 0, err
        assert out
    assert (tmp_path / "block.json").exists()
