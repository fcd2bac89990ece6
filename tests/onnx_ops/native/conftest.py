"""Every module of this folder lists its cases in CASES; they are compiled together, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.onnx_ops.native.single_node import Outcome, compile_header, run_cases


@pytest.fixture(scope="session")
def header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_header(tmp_path_factory.mktemp("header"))


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, header: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return run_cases(request.module.CASES, tmp_path_factory.mktemp("cases"), header)


@pytest.fixture
def outcome(outcomes: dict[str, Any], title: str) -> Outcome:
    found = outcomes[title]
    if isinstance(found, Exception):
        raise found
    return found
