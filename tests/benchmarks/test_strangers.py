"""Models of other libraries: a made-up one is judged, and a run that was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.bars import Bar
from benchmarks.children import Outcome
from benchmarks.strangers import __main__ as strangers
from benchmarks.strangers.generation import CASES, bars
from benchmarks.strangers.models import MODELS
from benchmarks.strangers.runs import run
from benchmarks.strangers.stranger import Stranger

# oneDNN of a processor, asked whether it is one of Intel's
pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh()


MADE_UP = Stranger(name="made up", make=Model, inputs=lambda batch: {"0": torch.randn(batch, 4)})


def test_one_program_serves_every_batch_size():
    found = run(MADE_UP, "training", dynamic=True)
    assert (found.kind, found.programs, found.compilations, found.compiled_flops) == ("equal", 1, 1, 1.0)


def test_batch_sizes_that_eager_refuses_are_left_out():
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))

    found = run(Stranger(name="norm", make=make, inputs=MADE_UP.inputs), "training", dynamic=True)
    assert (found.kind, found.compilations) == ("equal", 1)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(strangers, "MODELS", {"made up": MADE_UP})
    monkeypatch.setattr(strangers, "_LIBRARIES", ())
    journal = tmp_path / "rows.jsonl"
    line = ["--shapes", "fixed", "--jobs", "1", "--journal", str(journal), "--modes"]
    assert strangers.main([*line, "evaluation"]) == 0
    assert strangers.main([*line, "evaluation", "training"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [text.split()[2:5] for text in told] == [
        ["evaluation", "fixed", "equal"],
        ["training", "fixed", "equal"],
    ]
    assert [json.loads(row)["kind"] for row in journal.read_text().splitlines()] == ["equal", "equal"]


def test_a_crash_is_a_row():
    outcome = Outcome(case=0, told={}, end="signal 11", duration_s=3.0)
    row = strangers._row((next(iter(MODELS)), "training", True), outcome)
    assert (row["kind"], row["note"], row["dynamic"]) == ("foreign", "signal 11", True)


GOOD = {"model": "llama", "entrance": "daceml.compile", "cache": "dynamic", "kind": "equal",
        "compilations": 3, "eager_flops": 0.0}  # fmt: skip


def missed(row: dict[str, Any]) -> list[str]:
    found: list[Bar] = bars([GOOD, row])
    return [bar.name for bar in found if not bar.met]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, ""),
        ({"kind": "wrong"}, "generations wrong"),
        ({"kind": "foreign"}, "generations foreign"),
        ({"compilations": 4}, "compilations, daceml.compile, most"),
        ({"entrance": "torch.compile", "compilations": 5}, "compilations, torch.compile, most"),
        ({"eager_flops": 0.3}, "FLOPs that run eagerly, encoders among them, most"),
    ],
)
def test_each_bar_can_be_missed(change: dict[str, Any], name: str):
    assert missed({**GOOD, **change}) == ([name] if name else [])


def test_both_entrances_and_both_caches_are_asked():
    cases = CASES
    assert len(set(cases)) == 12
    assert {case[1:] for case in cases} == {
        (e, c) for e in ("daceml.compile", "torch.compile") for c in ("dynamic", "static")
    }
