"""Opens the page in a browser without its token on a command line, which all users of a machine can read."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager
from html import escape
from pathlib import Path


@contextmanager
def opened_in_browser(url: str) -> Generator[None]:
    """The browser is given a file that only this user can read, and that sends it on; removed at the end."""
    handle, name = tempfile.mkstemp(prefix="daceml-page-", suffix=".html")  # readable for its owner alone
    file = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as text:
            text.write(_sends_on(url))
        webbrowser.open(file.as_uri())
        yield
    finally:
        file.unlink(missing_ok=True)


def _sends_on(url: str) -> str:
    to = escape(url)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={to}"><title>daceml</title></head>'
        f'<body><a href="{to}">the page</a></body></html>\n'
    )
