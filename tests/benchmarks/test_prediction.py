"""The program of predictions for other hardware: its parts, and what it says of those that are not built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.bars import Bar
from benchmarks.prediction import __main__ as program
from tests.support.golden import golden


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("measurements", "traces"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_folder_without_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        program.main([str(tmp_path)])
    assert ended.value.code == 2
    said = capsys.readouterr().err.partition("error: ")[2]
    assert said == golden()
    assert all(fact in said for fact in (str(tmp_path), "'measurements'", "'traces'"))


def test_what_a_part_could_not_measure_is_missed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def part(given: Path, *, quick: bool) -> program.Seen:
        assert given == folder and quick
        return [{"case": "a"}], [
            Bar(name="planted", figure=0, limit=0),
            Bar(name="other", figure=None, limit=0),
        ]

    monkeypatch.setattr(program, "PARTS", {"planted": part})
    file = folder / "seen.json"
    assert program.main([str(folder), "--quick", "--check", "--json", str(file)]) == 1
    seen = json.loads(file.read_text())
    assert seen["rows"] == [{"part": "planted", "case": "a"}]
    assert [bar["met"] for bar in seen["bars"]] == [True, False]
    assert "not measured" in capsys.readouterr().out


@pytest.mark.slow
def test_a_part_alone(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert program.main([str(folder), "--part", "database", "--quick", "--check"]) == 0
    assert "not measured" not in capsys.readouterr().out
