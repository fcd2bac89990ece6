"""`daceml cache`, on a folder of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daceml import config as configuration
from daceml.cli.main import app
from daceml.config import Config
from daceml.toolchain.cache import Cache
from tests.support.golden import golden


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(configuration, "config", lambda: Config(cache=str(tmp_path / "cache")))
    return tmp_path / "cache"


def fill(folder: Path) -> None:
    cache = Cache(folder)
    for key in ("one", "two"):
        cache.get("kernels", key, lambda scratch: (scratch / "kernel.o").write_bytes(bytes(500_000)) and None)


def test_ls_of_nothing(folder: Path):
    done = CliRunner().invoke(app, ["cache", "ls"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == str(folder)
    assert done.stdout.splitlines()[-1] == "  total          0       0.0 MB"


def test_ls_counts_entries_by_kind(folder: Path):
    fill(folder)
    done = CliRunner().invoke(app, ["cache", "ls", "--json"])
    document = json.loads(done.stdout)
    kernels = next(kind for kind in document["kinds"] if kind["kind"] == "kernels")
    assert kernels["entries"] == 2
    assert kernels["size_bytes"] > 1_000_000
    assert "  kernels        2       1.0 MB, newest 2" in CliRunner().invoke(app, ["cache", "ls"]).stdout


def test_clear_removes_them_all(folder: Path):
    fill(folder)
    done = CliRunner().invoke(app, ["cache", "clear", "--yes"])
    assert done.exit_code == 0
    assert done.stdout == golden()
    assert "1.0 MB" in done.stdout and str(folder) in done.stdout
    assert not folder.exists()
    assert CliRunner().invoke(app, ["cache", "clear", "--yes", "--json"]).exit_code == 0


def test_clear_leaves_what_belongs_to_others(folder: Path):
    fill(folder)
    others = [
        folder / "letter.txt",
        folder / "kernels" / "linux" / "main.c",
        folder / "programs" / "Cargo.lock",
    ]
    for file in others:
        file.parent.mkdir(exist_ok=True)
        file.write_text("not of the cache")
    linked = folder.parent / "linked"
    linked.mkdir()
    (linked / "entry.json").write_text("{}")
    (folder / "headers").mkdir()
    (folder / "headers" / "link").symlink_to(linked)
    done = CliRunner().invoke(app, ["cache", "clear", "--yes"])
    assert done.exit_code == 0 and done.stdout == golden()
    assert all(file.exists() for file in others) and (linked / "entry.json").exists()
    assert not (folder / "kernels" / "one").exists() and not (folder / "CACHEDIR.TAG").exists()


def test_clear_of_another_folder_removes_nothing(folder: Path):
    folder.mkdir()
    (folder / "programs").mkdir()
    (folder / "programs" / "mine.py").write_text("")
    done = CliRunner().invoke(app, ["cache", "clear"])
    assert done.exit_code == 0 and "no cache in" in done.stdout
    assert (folder / "programs" / "mine.py").exists()


def test_clear_keeps_what_is_being_built(folder: Path):
    cache = Cache(folder)

    def build(scratch: Path) -> None:
        assert CliRunner().invoke(app, ["cache", "clear", "--yes"]).exit_code == 0
        (scratch / "file").write_text("")

    assert (cache.get("kernels", "three", build) / "file").exists()


def test_clear_asks_on_a_terminal_only(folder: Path, monkeypatch: pytest.MonkeyPatch):
    fill(folder)
    refused = CliRunner().invoke(app, ["cache", "clear"])
    assert refused.exit_code == 2 and refused.stderr == golden()
    assert "--yes" in refused.stderr
    monkeypatch.setattr("daceml.cli.cache._on_terminal", lambda: True)
    for answer, stays in (("n\n", True), ("y\n", False)):
        done = CliRunner().invoke(app, ["cache", "clear"], input=answer)
        assert done.exit_code == (1 if stays else 0)
        assert "kernels" in done.stderr and folder.exists() == stays
