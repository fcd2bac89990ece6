"""A headless Chromium, where there is one."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"


def chromium() -> str | None:
    """The browser's path: that of DACEML_CHROMIUM, or what the system calls chromium."""
    named = (os.environ.get("DACEML_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in named if name and (found := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(
    importlib.util.find_spec("playwright") is None or chromium() is None,
    reason="no browser: pip install playwright, and a Chromium on PATH (Debian: apt-get install chromium)",
)


class Tab:
    """A page in the browser, what it asked for, and its faults.

    Attributes:
        requests: hosts that anything was asked of.
        faults: errors of scripts, and of the console.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.faults: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "409" not in message.text:  # a refusal is no fault
            self.faults.append(message.text)

    @property
    def hosts(self) -> set[str]:
        """Of all requests but those for what is inside the page, or is the page itself as a file."""
        inside = ("data:", "blob:", "file:")
        return {urlsplit(url).hostname or "" for url in self.requests if not url.startswith(inside)}

    def text(self, selector: str) -> str:
        """Of the first element."""
        return self.page.locator(selector).first.inner_text()

    def wait(self, selector: str, **options: Any) -> Any:
        """For an element, a minute at most."""
        found = self.page.locator(selector, **options).first
        found.wait_for(timeout=60_000)
        return found

    def keep(self, name: str) -> None:
        """A screenshot, for whoever looks at a test run."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@contextmanager
def browsing() -> Iterator[Tab]:
    """A tab of a fresh browser; at the end nothing may have left this machine, or failed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        tab = Tab(browser.new_page(viewport={"width": 1400, "height": 900}))
        try:
            yield tab
            assert tab.faults == []
            assert tab.hosts <= {"127.0.0.1"}
        finally:
            browser.close()
