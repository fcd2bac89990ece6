"""Progress on a terminal, silence elsewhere, and stdout for the result alone."""

from __future__ import annotations

import sys
from io import StringIO

import pytest
from rich.console import Console

from daceml.cli import work
from daceml.cli.work import working
from daceml.runtime.progress import publish


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, quiet: bool = False) -> str:
    stream = StringIO()
    monkeypatch.setattr(
        work,
        "Console",
        lambda **_: Console(file=stream, force_terminal=terminal, width=80, color_system=None),
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


def test_elsewhere_nothing_is_shown(monkeypatch: pytest.MonkeyPatch):
    assert shown(monkeypatch, terminal=False) == ""
    assert shown(monkeypatch, terminal=True, quiet=True) == ""


def test_what_is_printed_meanwhile_goes_to_stderr(capsys: pytest.CaptureFixture[str]):
    with working(quiet=True):
        print("from the model")  # noqa: T201
    print("result", file=sys.stdout)  # noqa: T201
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("result\n", "from the model\n")
