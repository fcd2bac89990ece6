"""The programs of docs/dace_programs.md run as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.quick_programs import quick_programs

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "dace_programs.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:Using sets for connectors")
@pytest.mark.filterwarnings("ignore:Variable-length array")
def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "page_programs.py"  # DaCe reads the source of a program from its file
    script.write_text("\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with quick_programs(tmp_path):
        import page_programs  # pyright: ignore[reportMissingImports]
    assert page_programs.loss.shape == (1,)
    del sys.modules["page_programs"]
