"""`daceml export`: what it says of the weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.told import told

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
    assert code == 0 and "weights.py:Net is a class: its weights are those that it begins with" in err
    code, _, err = told(capsys, "export", f"{file}:trained", "-i", "3,4", "-o", str(tmp_path / "two"))
    assert code == 0 and "is a class" not in err
