"""The header of single nodes, which is precompiled once in a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onnx_ops.native.single_node import compile_header


@pytest.fixture(scope="session")
def header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_header(tmp_path_factory.mktemp("header"))
