"""The campaign of laws writes what it tried and found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import simulation_laws
from benchmarks.simulation_laws import LAWS, training_graph
from daceml.simulation.task import TaskKind


def test_a_run_is_the_same_for_the_same_seed_and_trains():
    first, again = training_graph(7), training_graph(7)
    assert np.array_equal(first.tasks.duration_us, again.tasks.duration_us)
    assert (first.tasks.kind == TaskKind.KERNEL).any()


def test_a_campaign_without_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DACEML_DATA", raising=False)
    file = tmp_path / "laws.json"
    assert simulation_laws.main(["--count", "2", "--check", "--json", str(file)]) == 0
    written = json.loads(file.read_text())
    assert [row["cases"] for row in written["rows"]] == [2, 0]
    assert [bar["figure"] for bar in written["bars"]] == [0] * len(LAWS)


def test_a_broken_law_is_told_and_missed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("DACEML_DATA", raising=False)
    monkeypatch.setattr(simulation_laws, "LAWS", {"nothing holds": lambda run: iter(["as always"])})
    assert simulation_laws.main(["--count", "1", "--check"]) == 1
    assert "seed 0: nothing holds: as always" in capsys.readouterr().out
