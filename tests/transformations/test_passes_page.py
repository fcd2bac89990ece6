"""docs/passes.md describes every pass of the standard recipe, in its order, with its level and its mode."""

from __future__ import annotations

import re
from pathlib import Path

from daceml.report.explanation.levels import TITLES
from daceml.transformations.standard import standard_recipe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "passes.md"
_MODES = {
    frozenset(): "all",
    frozenset({"inference", "frozen", "training"}): "all",
    frozenset({"inference", "frozen"}): "inference",
    frozenset({"training"}): "training",
    frozenset({"frozen"}): "frozen",
    frozenset({"inference"}): "unfrozen",
}


def test_every_pass_with_its_mode_in_its_level():
    only: dict[str, set[str]] = {}
    level_of: dict[str, str] = {}
    for step in standard_recipe():
        runs = set(step.only) or {"inference", "frozen", "training"}
        only[step.name] = only.get(step.name, set()) | runs
        level_of[step.name] = step.run.__module__.split(".")[2]
    described: dict[str, str] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\S.*) \|$", body, flags=re.MULTILINE)
        in_recipe = [name for name in level_of if TITLES[level_of[name]].strip() == title]
        assert sorted(name for name, *_ in rows) == sorted(in_recipe), title
        described |= {name: mode for name, mode, _ in rows}
    assert described == {name: _MODES[frozenset(modes)] for name, modes in only.items()}
