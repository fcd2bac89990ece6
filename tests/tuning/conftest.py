"""Programs that no earlier run of the tests has compiled, measured and stored."""

from __future__ import annotations

import uuid

import pytest

from daceml.compiler.keys import program_key


@pytest.fixture
def new_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give programs other keys than in any other run; their kernels are found in the cache as ever."""
    own = uuid.uuid4().hex
    monkeypatch.setattr(program_key, "package_digest", lambda: own)
