"""`--inputs`: arrays and tensors from files, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from daceml.cli.input_file import load_inputs
from daceml.errors import ModelReferenceError


def refusal(file: Path) -> ModelReferenceError:
    with pytest.raises(ModelReferenceError) as caught:
        load_inputs(file)
    return caught.value


def test_arrays_without_names_are_positional_and_named_ones_keywords(tmp_path: Path):
    many = [np.full((2,), i, dtype=np.float32) for i in range(12)]
    np.savez(tmp_path / "many.npz", *many)
    args, kwargs = load_inputs(tmp_path / "many.npz")
    assert [int(x[0]) for x in args] == list(range(12)) and kwargs == {}, "arr_10 comes after arr_9"
    np.savez(tmp_path / "mixed.npz", np.zeros((3, 0), dtype=np.int64), mask=np.array(True))
    args, kwargs = load_inputs(tmp_path / "mixed.npz")
    assert (tuple(args[0].shape), args[0].dtype) == ((3, 0), torch.int64)
    assert (tuple(kwargs["mask"].shape), kwargs["mask"].dtype) == ((), torch.bool)


@pytest.mark.parametrize("saved", [torch.ones(2), (torch.ones(2),), [torch.ones(2)]])
def test_a_tensor_or_a_sequence_of_them_is_positional(tmp_path: Path, saved: object):
    torch.save(saved, tmp_path / "x.pt")
    args, kwargs = load_inputs(tmp_path / "x.pt")
    assert len(args) == 1 and torch.equal(args[0], torch.ones(2)) and kwargs == {}


def test_a_dictionary_is_keywords(tmp_path: Path):
    torch.save({"x": torch.ones(2), "mask": None}, tmp_path / "x.pt")
    args, kwargs = load_inputs(tmp_path / "x.pt")
    assert args == () and list(kwargs) == ["x", "mask"]


def test_files_that_are_missing_or_of_another_kind(tmp_path: Path):
    assert refusal(tmp_path / "x.pt").why == "there is no such file"
    assert refusal(tmp_path).why == "it is a folder"
    (tmp_path / "x.csv").write_text("1,2")
    assert refusal(tmp_path / "x.csv").why == "the name has to end in .npz or .pt"


@pytest.mark.parametrize("name", ["x.npz", "x.pt"])
def test_damaged_files(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"PK\x03\x04 and then nothing")
    error = refusal(tmp_path / name)
    assert error.what == f"--inputs {tmp_path / name} cannot be read"
    assert error.why.startswith("it is damaged, or holds more than arrays and tensors (")


def test_code_in_a_file_is_not_run(tmp_path: Path):
    torch.save(Path("/never"), tmp_path / "x.pt")
    assert "holds more than arrays and tensors" in refusal(tmp_path / "x.pt").why
    np.savez(tmp_path / "x.npz", np.array([object()], dtype=object))
    assert "Object arrays cannot be loaded" in refusal(tmp_path / "x.npz").why


def test_a_number_is_no_input(tmp_path: Path):
    torch.save(3, tmp_path / "x.pt")
    assert refusal(tmp_path / "x.pt").what == f"--inputs {tmp_path / 'x.pt'} holds a int"
    torch.save({1: torch.ones(1)}, tmp_path / "x.pt")
    assert refusal(tmp_path / "x.pt").what.endswith("holds a dictionary whose keys are not all text")
