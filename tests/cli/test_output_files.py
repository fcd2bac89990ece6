"""Files that commands write: refused beforehand, whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.cli.output_files import check_targets, written_aside
from daceml.errors import OutputFileError
from tests.support.golden import raises


def test_new_and_existing_files_can_be_written(tmp_path: Path):
    (tmp_path / "old").write_text("old")
    check_targets([("--onnx", tmp_path / "new"), ("--sdfg", tmp_path / "old"), ("--json", None)])


def test_a_folder_that_is_not_there(tmp_path: Path):
    with raises(OutputFileError, f"--onnx {tmp_path / 'no' / 'x'} ", f"folder {tmp_path / 'no'}"):
        check_targets([("--onnx", tmp_path / "no" / "x")])


def test_what_is_no_file(tmp_path: Path):
    with raises(OutputFileError, f"--onnx {tmp_path} "):
        check_targets([("--onnx", tmp_path)])
    with raises(OutputFileError, "--onnx /dev/null "):
        check_targets([("--onnx", Path("/dev/null"))])


def test_a_link_that_leads_back_to_itself(tmp_path: Path):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with raises(OutputFileError, f"--onnx {tmp_path / 'circle'} "):
        check_targets([("--onnx", tmp_path / "circle")], read=tmp_path / "circle")


def test_one_file_for_two_things(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "x")
    with raises(OutputFileError, f"--sdfg {tmp_path / 'link'} ", "--onnx"):
        check_targets([("--onnx", tmp_path / "x"), ("--sdfg", tmp_path / "link")])


def test_all_files_are_moved_when_all_are_there(tmp_path: Path):
    target = tmp_path / "x.onnx"
    target.write_text("old")
    with written_aside("--onnx", target) as path:
        path.write_text("new")
        path.with_name("x.onnx.data").write_text("data")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.onnx", "x.onnx.data"]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    target = tmp_path / "x.onnx"
    target.write_text("old")

    def interrupted() -> None:
        with written_aside("--onnx", target) as path:
            path.write_text("half of it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["x.onnx"]
    assert target.read_text() == "old"


def test_a_full_disk_is_a_refusal(tmp_path: Path):
    refused = raises(OutputFileError, f"--onnx {tmp_path / 'x'} ", "No space left on device")
    with refused, written_aside("--onnx", tmp_path / "x"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with written_aside("--json", tmp_path / "link") as path:
        path.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
