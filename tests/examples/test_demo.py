"""The demonstration, on small inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import daceml
from examples import demo
from examples.mbconv import MBConv


def test_a_row_says_what_changed_and_whether_it_is_right():
    row = demo.measure("Mish", demo.Mish(), torch.randn(4, 8))
    name, steps, moved, _, speed, _, check = row.cells()
    assert (name, steps, check) == ("Mish", "3 -> 1", "ok")
    assert " -> " in moved and speed.endswith("x")


def test_the_block_is_right():
    torch.manual_seed(0)
    assert daceml.verify(MBConv(channels=8, expansion=2).eval(), torch.randn(2, 8, 6, 6)).passed


def test_a_wrong_result_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    right = demo.measure("Mish", demo.Mish(), torch.randn(4, 8))
    monkeypatch.setattr(demo, "measure", lambda *_: right)
    assert demo.main() == 0
    tensors = tuple(replace(tensor, limit=-1.0) for tensor in right.verification.tensors)
    wrong = replace(right, verification=replace(right.verification, tensors=tensors))
    monkeypatch.setattr(demo, "measure", lambda *_: wrong)
    assert demo.main() == 1
    assert "FAILED" in capsys.readouterr().out
