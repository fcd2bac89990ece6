"""Graphs of GraphNet: a made-up one runs as theirs do; theirs run where the folder is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.graphnet.__main__ import main, verdict_of
from benchmarks.graphnet.captured_graph import captured_graph
from benchmarks.graphnet.collection import default_folder, draw

_MODEL = """\
import torch
from torch import device

class GraphModule(torch.nn.Module):
    def forward(self, L_x_ : torch.Tensor, L_self_parameters_weight_ : torch.nn.parameter.Parameter,
                L_self_buffers_mean_ : torch.Tensor, L_self_eps : torch.Tensor, L_ids_ : torch.Tensor):
        y = torch.nn.functional.linear(L_x_ - L_self_buffers_mean_, L_self_parameters_weight_)
        y = torch.nn.functional.layer_norm(y, (4,), eps = L_self_eps.item())
        z = torch.arange(3, device = device(type='cuda', index=0)).to(torch.float32)
        return (y.to(torch.float32), z[L_ids_])
"""


def described(name: str, shape: str, **more: object) -> str:
    facts = {"dtype": '"torch.float32"', "device": '"cuda:0"', "mean": 0.1, "std": 1.0, "data": None, **more}
    lines = [f'name = "{name}"', f"shape = {shape}", *(f"{key} = {value}" for key, value in facts.items())]
    return f"class {name}meta:\n" + "".join(f"\t{line}\n" for line in lines) + "\n\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        graph = tmp_path / "samples" / "made-up" / f"graph{number}"
        graph.mkdir(parents=True)
        (graph / "model.py").write_text(_MODEL.replace("'cuda'", '"cuda"'), encoding="utf-8")
        (graph / "input_meta.py").write_text("", encoding="utf-8")
        rows = "[7, 4]" if number else "[70_000_000, 4]"
        metas = [
            described("L_x_", "[2, 4]", min_val=0.0),
            described("L_self_parameters_weight_", "[4, 4]"),
            described("L_self_buffers_mean_", "[4]"),
            described("L_self_eps", "[]", data="[0.001]", std=0.0),
            described("L_ids_", "[5]", dtype='"torch.int64"', min_val=0, max_val=2),
            described("L_self_table", rows.replace("_", "")),
        ]
        (graph / "weight_meta.py").write_text("".join(metas), encoding="utf-8")
    return tmp_path


def test_a_draw_leaves_out_what_is_large_and_takes_the_next(folder: Path):
    found = draw(folder, count=2, seed=0)
    assert sorted(found.names) == ["made-up/graph1", "made-up/graph2"]
    assert draw(folder, count=3, seed=1).large == 1
    assert draw(folder, count=2, seed=0) == found
    assert draw(folder, count=3, seed=0, words=("graph2",)).names == ("made-up/graph2",)


def test_weights_and_buffers_are_the_modules_and_values_are_as_described(folder: Path):
    graph = captured_graph(folder, "made-up/graph1")
    module, inputs = graph.make(), graph.inputs(1)
    assert [name for name, _ in module.named_parameters()] == ["L_self_parameters_weight_"]
    assert [name for name, _ in module.named_buffers()] == ["L_self_buffers_mean_"]
    assert list(inputs) == ["L_x_", "L_self_eps", "L_ids_"]
    assert inputs["L_x_"].min() >= 0 and inputs["L_self_eps"] == 0.001 and inputs["L_ids_"].max() <= 2
    assert graph.make_precise is not None
    wide = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    results = graph.make_precise().double()(**wide)
    assert results[0].dtype == results[1].dtype == torch.float64


def test_verdicts():
    row = {"kind": "equal", "programs": 1, "cut": False, "note": ""}
    assert verdict_of(row) == "equal"
    assert verdict_of({**row, "cut": True}) == "equal with cuts"
    assert verdict_of({**row, "programs": 0, "cut": True}) == "eager"
    assert verdict_of({**row, "kind": "wrong"}) == "wrong"
    assert verdict_of({**row, "kind": "foreign", "note": "MemoryError: "}) == "out of memory"


def test_without_a_folder_the_program_says_so(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.delenv("DACEML_SUITES", raising=False)
    assert main(["--check"]) == 0
    assert "DACEML_SUITES" in capsys.readouterr().out


@pytest.mark.slow
def test_graphs_run_and_known_rows_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]):
    file, journal = folder / "found.json", folder / "journal.jsonl"
    line = ["--suite", str(folder), "--count", "1", "--check", "--json", str(file), "--journal", str(journal)]
    assert main(line) == 0, capsys.readouterr().out
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [(row["mode"], row["verdict"]) for row in rows] == [("evaluation", "equal"), ("training", "equal")]
    known = journal.read_text(encoding="utf-8")
    assert main(line) == 0 and journal.read_text(encoding="utf-8") == known


@pytest.mark.slow
@pytest.mark.skipif(default_folder() is None, reason="$DACEML_SUITES has no GraphNet")
def test_one_of_theirs(tmp_path: Path):
    line = ["--count", "1", "--mode", "evaluation", "--graphs", "prajjwal1_bert-tiny", "--check"]
    assert main([*line, "--journal", str(tmp_path / "journal.jsonl")]) == 0
