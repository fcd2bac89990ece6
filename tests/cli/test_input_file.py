"""`--inputs`: arrays and tensors from files, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from daceml.cli.input_file import load_inputs
from daceml.errors import ModelReferenceError
from tests.support.golden import golden, raises


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
    with raises(ModelReferenceError, f"--inputs {tmp_path / 'x.pt'} "):
        load_inputs(tmp_path / "x.pt")
    with raises(ModelReferenceError, f"--inputs {tmp_path} "):
        load_inputs(tmp_path)
    (tmp_path / "x.csv").write_text("1,2")
    with raises(ModelReferenceError, f"--inputs {tmp_path / 'x.csv'} ", ".npz", ".pt"):
        load_inputs(tmp_path / "x.csv")


def ours(error: ModelReferenceError) -> str:
    """The reason without what numpy or torch said."""
    return error.why.partition(" (")[0]


@pytest.mark.parametrize("name", ["x.npz", "x.pt"])
def test_damaged_files(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"PK\x03\x04 and then nothing")
    with raises(ModelReferenceError, f"--inputs {tmp_path / name} ", exact=False) as caught:
        load_inputs(tmp_path / name)
    assert [caught.value.what, ours(caught.value)] == [golden(), golden()]


def test_code_in_a_file_is_not_run(tmp_path: Path):
    torch.save(Path("/never"), tmp_path / "x.pt")
    with raises(ModelReferenceError, "UnpicklingError", exact=False) as caught:
        load_inputs(tmp_path / "x.pt")
    assert ours(caught.value) == golden()
    np.savez(tmp_path / "x.npz", np.array([object()], dtype=object))
    with raises(ModelReferenceError, "Object arrays cannot be loaded", exact=False):
        load_inputs(tmp_path / "x.npz")


def test_a_number_is_no_input(tmp_path: Path):
    torch.save(3, tmp_path / "x.pt")
    with raises(ModelReferenceError, f"--inputs {tmp_path / 'x.pt'} ", "int"):
        load_inputs(tmp_path / "x.pt")
    torch.save({1: torch.ones(1)}, tmp_path / "x.pt")
    with raises(ModelReferenceError, f"--inputs {tmp_path / 'x.pt'} ", "dictionary", "keys"):
        load_inputs(tmp_path / "x.pt")
