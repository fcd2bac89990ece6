"""Other tests may run beside these: this machine counts as quiet, except where a test says otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("daceml.runtime.timing.comparison.FOREIGN_LIMIT", float("inf"))
        yield
