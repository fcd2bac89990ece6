"""docs/options.md lists every option of a compiled module, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from daceml.compiler.options import module_options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_every_option_with_its_default():
    options, _, _ = PAGE.read_text().partition("## Environment variables")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", options, flags=re.MULTILINE)
    assert dict(rows) == {
        name: repr(value).replace("'", '"') for name, value in module_options({"fullgraph": False}).items()
    }
    assert len(rows) == len(dict(rows))
