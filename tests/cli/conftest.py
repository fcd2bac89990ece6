"""Commands without lines of progress, which a busy machine would add; this machine counts as idle."""

from __future__ import annotations

import pytest

from daceml.runtime import progress_lines


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_lines, "FIRST_S", 3600.0)


@pytest.fixture(autouse=True)
def _idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daceml.runtime.timing.comparison.FOREIGN_LIMIT", float("inf"))
