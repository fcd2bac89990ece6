"""`daceml export`: what it says of the weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.cli.model_reference import has_fresh_weights
from tests.support.command_line import told
from tests.support.golden import golden

WEIGHTS = """
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

trained = Net()
"""


def test_an_exported_class_has_the_weights_that_it_begins_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "weights.py"
    file.write_text(WEIGHTS)
    code, _, err = told(capsys, "export", f"{file}:Net", "-i", "3,4", "-o", str(tmp_path / "one"))
    (said,) = [line for line in err.splitlines() if "weights.py:Net" in line]
    assert (code, said) == (0, golden())
    assert has_fresh_weights(f"{file}:Net") and not has_fresh_weights(f"{file}:trained")
