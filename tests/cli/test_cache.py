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
    done = CliRunner().invoke(app, ["cache", "clear"])
    assert done.exit_code == 0
    assert done.stdout == golden()
    assert "1.0 MB" in done.stdout and str(folder) in done.stdout
    assert not folder.exists()
    assert CliRunner().invoke(app, ["cache", "clear", "--json"]).exit_code == 0
