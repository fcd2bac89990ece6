"""One call of the command line, and what it said."""

from __future__ import annotations

import pytest

from daceml.cli.main import app


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    code = 0
    try:
        app([str(argument) for argument in arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out, err
