"""Every module of this folder lists its cases in CASES; those of a run are compiled together, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, run_cases


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, header: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    tests = [test for test in request.session.items if isinstance(test, pytest.Function)]
    here = [test.callspec for test in tests if test.module is request.module and hasattr(test, "callspec")]
    titles: set[Any] = {spec.params.get("title") for spec in here}
    every: dict[str, Case] = request.module.CASES
    cases = {title: case for title, case in every.items() if title in titles}
    return run_cases(cases, tmp_path_factory.mktemp("cases"), header)


@pytest.fixture
def outcome(outcomes: dict[str, Any], title: str) -> Outcome:
    found = outcomes[title]
    if isinstance(found, Exception):
        raise found
    return found
