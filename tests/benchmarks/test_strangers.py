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
from benchmarks.rounds import Measurement, Slice
from benchmarks.speed import Comparison
from benchmarks.strangers import __main__ as strangers
from benchmarks.strangers import timed_models, times
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


def timed(**durations_us: float) -> dict[str, Any]:
    """A row of eight quiet rounds."""
    quiet = {name: Slice(duration_us=us, foreign=0.0) for name, us in durations_us.items()}
    measurement = Measurement(names=tuple(durations_us), rounds=(quiet,) * 8)
    return times.row_of("mlp", "inference", Comparison(case="", measurement=measurement))


@pytest.mark.parametrize(
    ("ours_us", "met"), [(1e3, [True, True, True]), (1.55e3, [False, True, True]), (2.1e3, [False] * 3)]
)
def test_times_are_compared_with_the_best_peer_and_with_eager(ours_us: float, met: list[bool]):
    row = timed(eager=2e3, inductor=1.6e3, daceml=ours_us)
    assert [bar.met for bar in times.bars([row]) if bar.name.startswith("models of others")] == met


def test_a_model_that_was_not_measured_misses_every_bar():
    absent = Comparison(
        case="", measurement=Measurement(names=("daceml",), rounds=(), missing={"daceml": "why"})
    )
    assert not any(bar.met for bar in times.bars([times.row_of("mlp", "training", absent)]))


def test_timed_models_take_their_arguments_in_order_and_twenty_are_kept_apart():
    spec = times.spec_of("nn.TransformerEncoder")
    inputs, again = spec.example(), spec.example()
    assert torch.equal(inputs[0], again[0]) and inputs[0].shape == (8, 128, 256)
    with torch.no_grad():
        assert spec.module()(*inputs).shape == inputs[0].shape
    names = {model.name for model in timed_models.MODELS}
    assert len(names) == len(timed_models.MODELS) >= 40
    assert len(timed_models.KEPT_APART) == 20 and names > timed_models.KEPT_APART


@pytest.mark.slow
def test_a_model_is_timed_and_its_rows_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    journal = tmp_path / "rows.jsonl"
    line = ["--part", "times", "--models", "mlp", "--quick", "--modes", "evaluation", "--peers", "inductor"]
    for _ in range(2):  # the second reads what the first has kept
        assert strangers.main([*line, "--journal", str(journal)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second and first.startswith("mlp, inference")
    (row,) = [json.loads(text) for text in journal.read_text().splitlines()]
    assert set(row["times"]["names"]) == {"eager", "inductor", "daceml"}
