"""What is published: the wheel has all of the package, and the sdist all of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """Files of the repository, without links into the package."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no repository of git")
    return {
        name
        for name in done.stdout.split("\0")
        if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()
    }


@pytest.fixture(scope="module")
def dist(tracked: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, made of a copy of the tracked files."""
    pytest.importorskip("setuptools.build_meta")
    copy = tmp_path_factory.mktemp("packaging") / "daceml"
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "dist"


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(tracked: set[str], dist: Path):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == {n for n in tracked if n.startswith("daceml/") and not n.endswith("README.md")}


def test_the_sdist_is_the_repository(tracked: set[str], dist: Path):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = (member.name.partition("/")[2] for member in archive.getmembers() if member.isfile())
        found = {name for name in inside if ".egg-info/" not in name}
    made = {"PKG-INFO", "setup.cfg"}
    assert found - made == {name for name in tracked if not name.startswith(".")}
    assert {"constraints.txt", "tests/conftest.py", "docs/options.md", "Makefile"} <= found
