"""A folder that is there is kept and filled; what cannot be written is said before anything is compiled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.deployment.folder import filled
from daceml.errors import DeploymentError
from tests.support.golden import raises


def test_an_empty_folder_is_filled_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "here"
    place.mkdir(mode=0o700)
    before = place.stat()
    monkeypatch.chdir(place)
    x = torch.randn(2, 3)
    daceml.export(daceml.dace_module(nn.ReLU().eval(), backward=False), x, to=".")
    assert (place.stat().st_ino, place.stat().st_mode) == (before.st_ino, before.st_mode)
    found = sorted(file.name for file in place.iterdir())
    assert found == ["example.cpp", "libmodel.so", "manifest.json", "model.h", "weights.bin"]
    torch.testing.assert_close(daceml.load(".")(x), x.relu())


def test_what_came_meanwhile_is_not_overwritten(tmp_path: Path):
    def fill() -> None:
        with filled(tmp_path) as aside:
            (aside / "a").write_text("new")
            (tmp_path / "a").write_text("mine")

    with raises(DeploymentError, tmp_path):
        fill()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "mine")]


def test_the_manifest_comes_last_and_nothing_stays_of_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rename, moved = Path.rename, list[str]()

    def renamed(self: Path, target: Path) -> Path:
        moved.append(self.name)
        if self.name == "manifest.json":
            raise OSError("the disk is full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)

    def fill() -> None:
        with filled(tmp_path) as aside:
            for name in ("manifest.json", "z", "a"):
                (aside / name).write_text("")

    with raises(DeploymentError, tmp_path, "the disk is full"):
        fill()
    assert moved == ["a", "z", "manifest.json"]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said_first(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with raises(DeploymentError, tmp_path / "file" / "made"):
        daceml.export(nn.ReLU().eval(), torch.randn(3), to=tmp_path / "file" / "made")


def test_parents_go_where_nothing_is_made(tmp_path: Path):
    def fail() -> None:
        with filled(tmp_path / "a" / "b" / "c"):
            assert os.listdir(tmp_path / "a") == ["b"]
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []
