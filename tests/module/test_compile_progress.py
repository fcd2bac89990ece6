"""A first call says on a terminal, or in the log, that it compiles."""

from __future__ import annotations

import logging
import sys
from io import StringIO

import pytest
import torch
from torch import nn

import daceml
from daceml.module.compile_progress import shown_while_compiling
from daceml.runtime import progress_lines
from daceml.runtime.progress import observed_by
from tests.support.waiting import until


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_lines, "FIRST_S", 0.0)


def test_a_terminal_shows_the_first_call(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    module = daceml.compile(nn.Sequential(nn.Linear(3, 5), nn.Tanh()), backward=False)
    with torch.no_grad():
        module(torch.ones(2, 3))
        first = terminal.getvalue()
        module(torch.ones(2, 3))
    assert "daceml: compiling Sequential" in first
    assert terminal.getvalue() == first, "a call of a known program prints nothing"


def test_a_file_gets_nothing_and_the_log_gets_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with caplog.at_level(logging.WARNING, "daceml"), shown_while_compiling("Net"):
        pass
    assert stream.getvalue() == "" and caplog.messages == []
    with caplog.at_level(logging.INFO, "daceml"), shown_while_compiling("Net"):
        until(lambda: bool(caplog.messages))
    assert caplog.messages[0].startswith("compiling Net (0 s)")
    assert stream.getvalue() == ""


def test_there_is_one_display(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with observed_by(lambda _: None), shown_while_compiling("Net"):
        pass
    assert terminal.getvalue() == ""
