"""`daceml whatif` of a model: its first line, progress, and a machine that other programs use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daceml.exploration import effects
from daceml.exploration.variant_timings import Programs
from tests.support.command_line import told

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(16))

    def forward(self, x):
        y = torch.tanh(x * self.scale) * torch.sigmoid(x)
        return torch.softmax(y, -1).sum(0)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:Net"


def test_the_first_line_names_the_mode_and_how_to_change_it(model: str, capsys: pytest.CaptureFixture[str]):
    question = ("whatif", model, "-i", "8,16", "--without", "use_columns", "-q")
    code, out, err = told(capsys, *question)
    assert (code, out.splitlines()[0]) == (0, "Net, a forward pass; eval mode (--train: training mode)"), err
    code, out, err = told(capsys, *question, "--train")
    assert code == 0, err
    assert out.splitlines()[0] == "Net, a training step; training mode (without --train: eval mode)"


def test_figures_of_a_busy_machine_are_missing_and_the_exit_code_says_so(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(effects, "PATIENCE_S", 0.0)
    monkeypatch.setattr(Programs, "busy", lambda *_: "other programs used 47% of this machine")
    question = ("whatif", model, "-i", "8,16", "--without", "fuse_maps", "-q")
    code, out, _ = told(capsys, *question)
    assert code == 3
    assert out.count("? (machine is busy)") == 2 and "not measured: the machine is busy" in out
    assert "Other programs used 47%" in " ".join(out.split())
    code, out, _ = told(capsys, *question, "--json")
    (effect,) = json.loads(out)["effects"]
    assert code == 3 and effect["among"] is None and effect["unmeasured"] == ["among", "alone"]
