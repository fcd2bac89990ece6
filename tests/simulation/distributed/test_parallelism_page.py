"""The example of docs/parallelism.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "parallelism.md"


def test_the_example_predicts_a_step(capsys: pytest.CaptureFixture[str]):
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    exec(compile(found[1], str(PAGE), "exec"), {})
    # 64 devices: 256 samples of 1024 tokens through 1.3 billion parameters take about a second
    assert 1e5 < float(capsys.readouterr().out) < 2e6
