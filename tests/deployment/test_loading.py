"""What is loaded is what was checked, takes the calls of the module, and refuses what it would misread."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.deployment import loading
from daceml.deployment.exporting import Exported
from daceml.errors import BundleError, CallError, DeploymentError, PositionError
from tests.support.golden import golden, raises


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor, **rest: Any) -> torch.Tensor:
        y = x * self.factor
        return y + 2 * rest["a"] - rest["b"]["c"] + 5 * rest["b"]["d"] if rest else y


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return daceml.export(Times(2.0).eval(), torch.randn(4, 6), to=tmp_path_factory.mktemp("made") / "twice")


def _copied(made: Exported, to: Path) -> Path:
    to.mkdir()
    for file in made.folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_folder_that_was_exported_again_gives_the_new_model(twice: Exported, tmp_path: Path):
    x = torch.randn(4, 6)
    place = _copied(twice, tmp_path / "place")
    old = daceml.load(place)
    torch.testing.assert_close(old(x), 2 * x)
    again = daceml.export(Times(7.0).eval(), x, to=tmp_path / "again")
    for file in again.folder.iterdir():
        (place / file.name).write_bytes(file.read_bytes())  # in place: path and inode are the same
    torch.testing.assert_close(daceml.load(place, sha256=again.sha256)(x), 7 * x)
    torch.testing.assert_close(old(x), 2 * x)


def test_the_library_that_runs_is_the_one_that_was_hashed(
    twice: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = _copied(twice, tmp_path / "place")
    opened: list[Path] = []
    cdll = loading.ctypes.CDLL

    def late(path: str) -> Any:
        (place / "libmodel.so").write_bytes(b"changed between being hashed and being opened")
        opened.append(Path(path))
        assert opened[0].parent.stat().st_mode & 0o777 == 0o700
        return cdll(path)

    monkeypatch.setattr(loading.ctypes, "CDLL", late)
    x = torch.randn(4, 6)
    torch.testing.assert_close(daceml.load(place)(x), 2 * x)
    assert not opened[0].parent.exists()


def test_keywords_and_keys_come_in_any_order(tmp_path: Path):
    model, x = Times(2.0).eval(), torch.randn(3)
    a, c, d = torch.randn(3), torch.randn(3), torch.randn(3)
    made = daceml.export(model, x, a=a, b={"d": d, "c": c}, to=tmp_path / "made")
    loaded, expected = daceml.load(made.folder), model(x, a=a, b={"c": c, "d": d})
    torch.testing.assert_close(loaded(x, b={"c": c, "d": d}, a=a), expected)
    torch.testing.assert_close(loaded(x, a=a, b={"d": d, "c": c}), expected)
    with raises(CallError, "Times", "['d']", exact=False) as refused:  # torch writes how arguments are nested
        loaded(x, a=a, b={"d": d})
    assert [refused.value.what, refused.value.fix] == [golden(), golden()]
    with raises(CallError, "Times", "a, b, e", exact=False):
        loaded(x, a=a, b={"d": d, "c": c}, e=x)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_loaded_model_is_not_copied(copied: Callable[[Any], Any], twice: Exported):
    loaded, x = daceml.load(twice.folder), torch.randn(4, 6)
    with raises(DeploymentError, "Times"):
        copied(loaded)
    torch.testing.assert_close(loaded(x), 2 * x)


def test_a_tensor_without_its_memory_is_refused(twice: Exported):
    loaded, x = daceml.load(twice.folder), torch.randn(4, 6)
    x.untyped_storage().resize_(0)
    with raises(CallError, "x ", "0 bytes", "need 96"):
        loaded(x)
    with raises(CallError, "x is torch.sparse_coo"):
        loaded(torch.randn(4, 6).to_sparse())


def test_an_index_outside_is_the_error_of_a_compiled_module(tmp_path: Path):
    class Rows(nn.Module):
        def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return 2 * x[rows]

    x, rows = torch.randn(4, 6), torch.tensor([3, -4, 0])
    loaded = daceml.load(daceml.export(Rows().eval(), x, rows, to=tmp_path / "rows").folder)
    torch.testing.assert_close(loaded(x, rows), 2 * x[rows])
    for outside in (4, -5):
        with pytest.raises(PositionError, match=r"DML407.*refused a call") as refused:
            loaded(x, torch.tensor([0, outside, 1]))
        assert isinstance(refused.value, IndexError)


def _at(*place: Any, value: Any) -> Callable[[Any], None]:
    def change(record: Any) -> None:
        for step in place[:-1]:
            record = record[step]
        record[place[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (_at("files", value={}), ["libmodel.so", "weights.bin"]),
        (_at("files", value=[]), ["attribute"]),
        (_at("files", "weights.bin", value=3), ["text"]),
        (_at("files", "weights.bin", value=""), ["'weights.bin'", "''"]),
        (_at("files", "../x", value="0" * 64), ["'../x'"]),
        (_at("name", value="../model"), ["'../model'"]),
        (_at("name", value=3), ["name is 3"]),
        (_at("libtorch", value="no"), ["libtorch is 'no'"]),
        (_at("inputs", 0, "dtype", value="load"), ["x is 'load'"]),
        (_at("inputs", 0, "shape", value=[-1, 6]), ["x", "-1, 6"]),
        (_at("inputs", value=3), ["TypeError"]),
        (_at("sizes", value=[]), ["TypeError"]),
        (_at("leaves", "call", value=[1]), ["leaves", "call", "have 1"]),
        (_at("structures", value={}), ["structures", "call"]),
        (_at("structures", "call", value="[1"), ["call"]),
        (_at("leaves", "call", value=[]), ["call", "1 leaves", "has 0"]),
        (_at("more", value=1), ["more"]),
        (_at("outputs", 0, "shape", value=[4]), ["float32 of rank 1", "float32 of rank 2"]),
        (_at("outputs", 0, "shape", value=[4, 6, 1, 1]), ["float32 of rank 4"]),
        (_at("inputs", 0, "shape", value=[]), ["(float32 of rank 0)"]),
        (lambda record: record["outputs"].append(record["outputs"][0]), ["rank 2, float32 of rank 2"]),
        (
            lambda record: record["outputs"][0].update(dtype="float64", code=7),
            ["-> (float64 of rank 2)", "-> (float32 of rank 2)"],
        ),
    ],
)
def test_a_manifest_of_another_form_is_refused(
    change: Callable[[Any], None], facts: list[str], twice: Exported, tmp_path: Path
):
    place = _copied(twice, tmp_path / "place")
    record = json.loads((place / "manifest.json").read_text())
    change(record)
    text = json.dumps(record)
    (place / "manifest.json").write_text(text)
    with raises(BundleError, *facts):
        daceml.load(place, sha256=hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.parametrize("name", ["manifest.json", "weights.bin", "libmodel.so"])
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
def test_what_is_no_plain_file_is_refused_at_once(name: str, kind: str, twice: Exported, tmp_path: Path):
    place = _copied(twice, tmp_path / "place")
    (place / name).unlink()
    if kind == "a pipe":
        os.mkfifo(place / name)  # nobody writes to it
    elif kind == "a device":
        (place / name).symlink_to("/dev/zero")
    else:
        (place / name).mkdir()
    with raises(BundleError, "it is not a plain file", exact=False):
        daceml.load(place)


@pytest.mark.parametrize("sha256", ["", "0123", "x" * 64])
def test_what_is_no_hash_does_not_switch_the_check_off(sha256: str, twice: Exported):
    with raises(BundleError, f"sha256={sha256!r}", "64"):
        daceml.load(twice.folder, sha256=sha256)
    daceml.load(twice.folder, sha256=twice.sha256.upper())
