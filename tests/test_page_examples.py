"""Examples of pages that are no tutorials: each runs as it stands, and does what the page says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import daceml

DOCS = Path(__file__).resolve().parents[1] / "docs"


def run(page: str, heading: str) -> dict[str, Any]:
    """Run the Python of a section, and return its variables."""
    section = (DOCS / page).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    variables: dict[str, Any] = {"torch": torch, "daceml": daceml}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(compile(block, page, "exec"), variables)
    return variables


def test_checkpoints_of_compiled_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = run("compiled_modules.md", "Checkpoints")
    x = torch.randn(3, 16)
    with torch.no_grad():
        expected = found["plain"](x)
        for name in ("model", "again", "other"):
            assert isinstance(found[name], torch.nn.Linear) and hasattr(found[name], "session")
            torch.testing.assert_close(found[name](x), expected)
        found["model"].weight += 1
        torch.testing.assert_close(found["other"](x), expected)
    assert type(found["model"].session.eager) is torch.nn.Linear


def test_a_hook_that_copies_into_a_buffer_cuts_nothing():
    found = run("partial_compilation.md", "Keep values of a hook without a cut")
    model, gate, x = found["model"], found["gate"], torch.randn(32, 64)
    model(x).sum().backward()
    torch.testing.assert_close(gate.map, gate.psi(x).detach())
    assert "map" not in gate.state_dict()
    assert all(parameter.grad is not None for parameter in gate.parameters())
    assert str(daceml.explain(model, x)).count("eager code") == 0
