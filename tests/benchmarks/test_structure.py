"""The structure check finds what it is there for, in a package made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import structure

CONTRACT = """
[[tool.importlinter.contracts]]
name = "top before bottom"
type = "layers"
layers = ["daceml.top | daceml.side", "daceml.bottom"]
"""
Files = Callable[[dict[str, str]], None]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Write the modules of a package that is checked until the test ends."""
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    monkeypatch.setattr(structure, "PACKAGE", tmp_path / "daceml")
    monkeypatch.setattr(structure, "DOORS", ("daceml.top",))
    monkeypatch.setattr("daceml._HOMES", {})
    structure.modules.cache_clear()
    (tmp_path / "pyproject.toml").write_text(CONTRACT)

    def write(texts: dict[str, str]) -> None:
        for name, text in texts.items():
            path = tmp_path / "daceml" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    yield write
    structure.modules.cache_clear()


def test_a_cycle_is_found_in_functions_but_not_in_annotations(files: Files):
    files({
        "a.py": "def f():\n    from daceml import b\n",
        "b.py": "from daceml.c import x\n",
        "c.py": "import daceml.a\nx = 1\n",
        "d.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import daceml.e\n",
        "e.py": "import daceml.d\n",
    })  # fmt: skip
    assert structure.cycles() == [["daceml.a", "daceml.b", "daceml.c"]]


def test_upward_and_sideward_imports_are_found(files: Files):
    files({
        "top.py": "import daceml.bottom\n",
        "side.py": "from daceml import top\n",
        "bottom.py": "def f():\n    import daceml.top\n",
    })  # fmt: skip
    assert structure.upward() == ["daceml.bottom -> daceml.top", "daceml.side -> daceml.top"]


def test_late_imports_belong_to_what_a_call_loads(files: Files):
    files({
        "top.py": "def f():\n    import daceml.bottom\n",
        "bottom.py": "def f():\n    import daceml.side\n",
        "side.py": "",
    })  # fmt: skip
    assert structure.late_imports() == ["daceml.bottom -> daceml.side"]
    assert structure.heavy_imports() == []


def test_dace_at_the_top_of_what_a_call_loads_is_found(files: Files):
    files({"top.py": "import daceml.bottom\n", "bottom.py": "from dace.sdfg import nodes\n"})
    assert structure.heavy_imports() == ["daceml.bottom -> dace"]


def test_folders_are_counted_without_their_init(files: Files):
    files({"many/__init__.py": "", "many/a.py": "", "many/b.py": "", "c.py": ""})
    assert structure.folders() == {"daceml/many": 2, "daceml": 1}
