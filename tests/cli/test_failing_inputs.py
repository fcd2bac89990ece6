"""Inputs with which a model fails: the error names the layer, its line, what was given, and the option."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import ModelInputs
from daceml.errors import ModelReferenceError
from tests.support.command_line import told
from tests.support.golden import golden, raises

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(10, 8), torch.nn.ReLU())

    def forward(self, x):
        return self.body(x)

class Picky(Net):
    def forward(self, x):
        if x.shape[1] != 10:
            raise ValueError("Picky takes 10 features")
        return self.body(x)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path / "net.py"


@pytest.mark.parametrize(
    "command",
    [
        "explain",
        "explain --train",
        "compile",
        "whatif --without fuse_maps",
        "explore",
        "measure",
        "predict --to H100",
    ],
)
def test_a_wrong_width_names_the_layer_and_the_option(
    file: Path, command: str, capsys: pytest.CaptureFixture[str]
):
    name, *rest = command.split()
    code, _, err = told(capsys, name, f"{file}:Net", "-i", "1,5", "-q", *rest)
    assert code == 2 and err.startswith("[DML501] Net fails with the given inputs")
    assert "layer body.0, net.py:10" in err and "x: float32 (1, 5)" in err and "-i SHAPE" in err
    assert "Linear(in_features=10" in err and "was given float32 (1, 5)" in err
    if name == "explain":
        assert err == golden()


def test_an_exception_of_the_models_own_is_told_as_it_is(file: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = told(capsys, "explain", f"{file}:Picky", "-i", "1,5", "-q")
    assert code == 2 and "Picky takes 10 features" in err and "DML501" not in err


def test_what_fails_although_a_plain_call_succeeds_stays_as_it_is():
    model = nn.Linear(4, 2)
    with (
        pytest.raises(RuntimeError, match="something else"),
        blamed_on_inputs(model, ModelInputs(args=(torch.ones(1, 4),), kwargs={})),
    ):
        raise RuntimeError("something else")
    with (
        raises(ModelReferenceError, "Linear fails", "(1, 3)"),
        blamed_on_inputs(model, ModelInputs(args=(torch.ones(1, 3),), kwargs={})),
    ):
        model(torch.ones(1, 3))
    assert not model._forward_hooks and not model._forward_pre_hooks
