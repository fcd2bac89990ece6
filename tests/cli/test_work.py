"""Progress on a terminal, lines elsewhere, and stdout for the result alone."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from daceml.cli import work
from daceml.cli.work import working
from daceml.runtime import progress_lines
from daceml.runtime.progress import publish
from tests.support.waiting import until


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, quiet: bool = False) -> str:
    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(
        work, "Console", partial(Console, force_terminal=terminal, width=80, color_system=None)
    )
    with working(quiet=quiet):
        publish("export")
        publish("kernels", 0, 3)
        publish("kernels", 2, 3)
    publish("export")  # nobody listens any more
    return stream.getvalue()


def test_a_terminal_shows_the_last_stage_and_its_parts(monkeypatch: pytest.MonkeyPatch):
    text = shown(monkeypatch, terminal=True)
    assert "kernels" in text and "2 of 3" in text


def test_elsewhere_a_line_is_printed_once_it_takes_long(monkeypatch: pytest.MonkeyPatch):
    assert shown(monkeypatch, terminal=False) == ""
    monkeypatch.setattr(progress_lines, "FIRST_S", 0.0)
    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    # the export holds back what torch writes to stderr, which must not delay progress
    with working(quiet=False), redirect_stderr(StringIO()):
        publish("kernels", 2, 3)
        until(lambda: "compiling kernels, 2 of 3" in stream.getvalue())


def test_a_process_without_torch_prints_before_it_imports_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delitem(sys.modules, "torch")
    with working(quiet=False, imports_torch=True):
        assert capsys.readouterr().err == "starting (0 s)\n"


def test_quiet_shows_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress_lines, "FIRST_S", 0.0)
    assert shown(monkeypatch, terminal=True, quiet=True) == ""
    assert shown(monkeypatch, terminal=False, quiet=True) == ""


def test_what_is_printed_meanwhile_goes_to_stderr(capsys: pytest.CaptureFixture[str]):
    with working(quiet=True):
        print("from the model")  # noqa: T201
    print("result", file=sys.stdout)  # noqa: T201
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("result\n", "from the model\n")
