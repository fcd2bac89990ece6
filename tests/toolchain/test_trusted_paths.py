"""Temporary folders: private, and in a folder where nobody can replace them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from daceml.errors import EnvironmentProblem
from daceml.toolchain.trusted_paths import private_folder
from tests.support.golden import raises


def test_a_temporary_folder_is_private_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)  # everyone may write, as in /tmp, and replace nothing of others
    with private_folder() as folder:
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_place_in_which_others_can_replace_folders_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o777)
    with raises(EnvironmentProblem, tmp_path, "0777", "chmod", exact=False), private_folder():
        pass
    assert not list(tmp_path.iterdir())
