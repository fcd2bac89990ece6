"""The browser is started without the token, and still finds the page."""

from __future__ import annotations

import re
import stat
import webbrowser
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from daceml.cli.gui import _serve
from daceml.gui.opening import opened_in_browser
from daceml.gui.pages import VariantsPage
from daceml.gui.server import PageServer
from tests.support.explorations import explored

URL = "http://127.0.0.1:8700/?token=secret&more"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser's command line would hold."""
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


def test_a_file_for_this_user_sends_the_browser_on_and_is_removed(given: list[str]):
    with opened_in_browser(URL):
        (address,) = given
        file = Path(url2pathname(urlsplit(address).path))
        assert address.startswith("file:") and "secret" not in address
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = re.search('content="0; url=([^"]*)"', file.read_text())
        assert found is not None and unescape(found[1]) == URL
    assert not file.exists()


def test_the_file_is_removed_where_the_page_is_interrupted(given: list[str]):
    def look() -> None:
        with opened_in_browser(URL):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        look()
    assert not Path(url2pathname(urlsplit(given[0]).path)).exists()


def test_the_command_gives_the_browser_no_token(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(PageServer, "wait", lambda _: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    _serve(VariantsPage(explored()), 0, browser=True)
    token = capsys.readouterr().out.strip().partition("token=")[2]
    assert len(token) >= 32 and len(given) == 1 and token not in given[0]
