"""`daceml learn`: from a database to models, which predictions then take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from daceml.cli.learn import Done
from daceml.cli.main import app
from daceml.operations.database.store import OpDatabase
from daceml.operations.models.fitting.from_database import Lesson
from tests.support.command_line import told
from tests.support.golden import golden
from tests.support.synthetic_operations import entry, products, seconds

COUNT = 60
Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """What a command says on both streams; it has to end with the code that is expected."""

    def call(words: list[str], code: int = 0) -> str:
        ended, out, err = told(capsys, *words)
        assert ended == code, err
        return out + err

    return call


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Products of matrices on a T4, some on a V100, and on a device that nobody has described."""
    path = tmp_path / "rows.db"
    operations = products(COUNT)
    with OpDatabase(path) as rows:
        for name, count in (("Tesla T4", COUNT), ("Tesla V100-PCIE-32GB", 10), ("Home-made 1", COUNT)):
            rows.add_all(
                entry(one, name, s) for one, s in zip(operations[:count], seconds(operations), strict=False)
            )
    return path


@pytest.mark.slow
def test_models_are_told_and_written(database: Path, tmp_path: Path, said: Said):
    output = tmp_path / "models.npz"
    text = said(["learn", str(database), "-o", str(output), "--budget", "0s", "--quiet"])
    assert "1 models" in text
    assert "0.0 x 0.1 x 1.1" in text
    assert "10 measurements" in text and "40" in text
    (unknown,) = [line for line in text.splitlines() if "Home-made 1" in line]
    assert unknown == golden()
    as_json = json.loads(
        said(["learn", str(database), "-o", str(output), "--budget", "0s", "--quiet", "--json"])
    )
    assert [(one["device"], one["rows"]) for one in as_json["models"]] == [("T4", 60), ("V100-PCIe-32GB", 10)]
    assert as_json["models"][0]["error"] < 0.2


def test_what_was_learned_before_an_interruption_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("daceml.operations.models.model_file.write_models", lambda m, p: p.write_text(str(m)))
    done = Done(tmp_path / "models.npz")
    fitted = SimpleNamespace(model="a model", error=0.1)
    lesson = Lesson(kind="('aten::mm',)", device="T4", rows=60, fitted=fitted)  # pyright: ignore[reportArgumentType]
    done.add(lesson)
    assert not (tmp_path / "models.npz").exists()
    done.save()
    assert (tmp_path / "models.npz").read_text() == "['a model']"
    monkeypatch.setattr("daceml.cli.learn._BETWEEN_SAVES_S", 0.0)
    done.add(lesson)
    assert (tmp_path / "models.npz").read_text() == "['a model', 'a model']"


@pytest.mark.slow
def test_a_prediction_takes_them(database: Path, tmp_path: Path, said: Said):
    output = tmp_path / "models.npz"
    said(["learn", str(database), "-o", str(output), "--budget", "0s", "--quiet"])
    module = tmp_path / "model.py"
    module.write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(700, 900))\n\n"
        "    def forward(self, x):\n        return x @ self.weight\n"
    )
    words = [
        "predict",
        f"{module}:Net",
        "--input",
        "500,700",
        "--to",
        "T4",
        "--inference",
        "--json",
        "--quiet",
    ]
    plain = json.loads(said(words))
    learned = json.loads(said([*words, "--models", str(output)]))
    assert plain != learned
    assert '"learned": 1.0' in json.dumps(learned)


def test_nothing_to_learn_is_refused_and_nothing_written(database: Path, tmp_path: Path, said: Said):
    output = tmp_path / "models.npz"
    text = said(["learn", str(database), "-o", str(output), "--device", "V100-PCIe-32GB", "--quiet"], code=2)
    assert text == golden()
    assert all(fact in text for fact in (str(database), "10 measurements", "40", "Home-made 1"))
    assert not output.exists()


@pytest.mark.slow
def test_a_described_device_is_learned_too(database: Path, tmp_path: Path, said: Said):
    described = tmp_path / "home.toml"
    described.write_text(
        'name = "Home-made 1"\nkind = "gpu"\nvendor = "me"\narchitecture = "mine"\n'
        'multiprocessors = { value = 8, source = "me", verified = true }\n'
        'memory_bytes_per_s = { value = 1e12, source = "me", verified = true }\n'
        '[peak_flops_per_s]\nfloat32 = { value = 1e13, source = "me", verified = true }\n'
        '[sources]\nme = "its maker"\n'
    )
    words = ["learn", str(database), "-o", str(tmp_path / "m.npz"), "--budget", "0s", "--quiet"]
    text = said([*words, "--describe", str(described)])
    assert "4 models" in text  # each device by itself, and with what the other took
    assert text.count("other devices") == 2


def test_the_command_is_listed():
    assert "learn" in [one.name for one in app.registered_commands]
