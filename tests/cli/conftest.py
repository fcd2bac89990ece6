"""Commands without lines of progress, which a busy machine would add to what they print."""

from __future__ import annotations

import pytest

from daceml.runtime import progress_lines


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_lines, "FIRST_S", 3600.0)
