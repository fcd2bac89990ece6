"""What the key of a stored program covers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import daceml
from daceml.compiler.keys import program_key
from daceml.compiler.keys.program_key import package_digest
from daceml.config import PACKAGE_FOLDER

PACKAGES = sorted({file.parent.relative_to(PACKAGE_FOLDER) for file in PACKAGE_FOLDER.rglob("__init__.py")})


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of daceml's sources, of which the digest is taken until the test ends."""
    folder = shutil.copytree(
        PACKAGE_FOLDER, tmp_path / "daceml", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(program_key, "PACKAGE_FOLDER", folder)
    return folder


def test_the_folder_of_the_package_is_that_of_daceml():
    assert Path(daceml.__file__).parent == PACKAGE_FOLDER and len(PACKAGES) > 20


def test_a_change_in_any_package_changes_the_digest(copy: Path):
    seen = {package_digest.__wrapped__()}
    for package in PACKAGES:
        with (copy / package / "__init__.py").open("a") as file:
            file.write("# changed\n")
        seen.add(package_digest.__wrapped__())
    assert len(seen) == len(PACKAGES) + 1


@pytest.mark.parametrize("suffix", [".h", ".cpp", ".cu"])
def test_sources_of_other_languages_count(copy: Path, suffix: str):
    before = package_digest.__wrapped__()
    (copy / f"new{suffix}").touch()
    assert package_digest.__wrapped__() != before
