"""`daceml gui`: its target tells what it shows; what is no target is refused before anything is served."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.support.command_line import told
from tests.support.explorations import explored
from tests.support.golden import golden

MODEL = """
import torch
from daceml.transformations import Recipe, Step

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x * 2) + 1

def nothing(network):
    "Does nothing"
    return 0

PASSES = Recipe(Step(nothing, at="local"))
RECIPE = Recipe(Step(nothing, at="local"))
WRONG = 3
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "guided_net.py").write_text(MODEL)
    return tmp_path / "guided_net.py"


def test_a_model_with_passes_of_a_file(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "net.html"
    target = (f"{net}:Net", "-i", "4,6", "-q", "-o", page)
    assert told(capsys, "gui", *target, "--passes", net)[0] == 0
    assert '"pass":"nothing"' in page.read_text() and '"applied":"no"' in page.read_text()
    assert told(capsys, "gui", *target, "--recipe", net)[0] == 0
    assert page.read_text().count('"applied":"everywhere"') == 1


def test_an_exploration_and_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    explored().save(tmp_path / "found.json")
    page = tmp_path / "page.html"
    assert told(capsys, "gui", tmp_path / "found.json", "-o", page)[0] == 0
    assert '"kind":"variants"' in page.read_text()
    (tmp_path / "wrong.json").write_text('{"a": 1}')
    code, _, err = told(capsys, "gui", tmp_path / "wrong.json", "-o", page)
    assert (code, err) == (2, golden())
    assert "wrong.json" in err
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}')[:20])
    code, _, err = told(capsys, "gui", tmp_path / "cut.json.gz", "-o", page)
    assert (code, err) == (2, golden())
    assert "cut.json.gz cannot be shown: a trace that ends in the middle" in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("nothing.json",), "nothing.json"),
        (("{net}:Nett",), "Nett"),
        (("{net}:Net", "-i", "4,6", "--start", "half"), "--start half"),
        (("{net}:Net", "-i", "4,6", "--recipe", "missing.py"), "missing.py"),
        (("{net}:Net", "-i", "4,6", "--recipe", "{net}x"), "guided_net.pyx"),
        (("{net}:Net", "-i", "4,6", "-o", "no/folder.html"), "-o"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    net: Path, words: tuple[str, ...], fact: str, capsys: pytest.CaptureFixture[str]
):
    code, out, err = told(capsys, "gui", *(word.format(net=net) for word in words), "--quiet")
    assert (code, out, err) == (2, "", golden())
    assert fact in err and "fix:" in err


def test_a_file_without_passes_is_refused(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "other_net.py").write_text("PASSES = 3\n")
    code, _, err = told(capsys, "gui", f"{net}:Net", "-i", "4,6", "--passes", tmp_path / "other_net.py")
    assert (code, err) == (2, golden())
    assert "other_net.py" in err and "PASSES" in err and "Recipe" in err
