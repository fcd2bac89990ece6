"""`daceml explore` and `daceml whatif`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daceml.exploration.results import Exploration
from tests.support.command_line import told
from tests.support.golden import golden

MODEL = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * torch.sigmoid(x)
        return torch.softmax(y, -1).sum(0)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:Net"


@pytest.mark.slow
def test_a_table_and_a_file(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "found.json"
    code, out, err = told(
        capsys, "explore", model, "-i", "8,16", "--budget", "60s", "--measurements", "1", "-o", str(file)
    )
    assert code == 0, err
    assert out.startswith("Net") and "x: float32 (8, 16)" in out.splitlines()[0]
    assert "time: " in out
    assert "ms predicted" in err and "ms measured" in err
    assert Exploration.load(file).model == "Net"


def test_effects_and_devices(model: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = told(
        capsys, "whatif", model, "-i", "8,16", "--without", "fuse_maps", "--to", "H100", "--json", "-q"
    )
    assert code == 0, err
    answer = json.loads(out)
    assert [effect["name"] for effect in answer["effects"]] == ["fuse_maps"]
    rows = answer["devices"]
    assert [row["title"] for row in rows] == [
        "eager on H100",
        "eager, as a CUDA graph, on H100",
        "fused on H100",
        "fused, as a CUDA graph, on H100",
    ]
    launched, graphed = rows[0]["predicted_ms"], rows[1]["predicted_ms"]
    assert graphed < launched  # small kernels wait for their launches


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["explore", "MODEL", "--budget", "soon"], "--budget 'soon'"),
        (["explore", "MODEL", "-i", "8,16", "--objective", "speed"], "--objective speed"),
        (["explore", "MODEL", "-i", "8,16", "--to", "Z80"], "Z80"),
        (["whatif", "MODEL", "-i", "8,16", "--without", "nothing"], "'nothing'"),
        (["whatif", "MODEL", "-i", "8,16", "--ranks", "8"], "--ranks"),
        (["whatif", "MODEL", "-i", "8,16", "--amp"], "--amp"),
        (["whatif", "net.py", "-i", "8,16"], "net.py"),
    ],
)
def test_refusals(model: str, capsys: pytest.CaptureFixture[str], arguments: list[str], fact: str):
    code, _, err = told(capsys, *[model if word == "MODEL" else word for word in arguments])
    assert (code, err) == (2, golden())
    assert fact in err
