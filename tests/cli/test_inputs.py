"""Inputs from the command line, or from an ONNX file itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from daceml.cli import inputs
from daceml.cli.inputs import make_inputs, parse_dims
from daceml.errors import ModelReferenceError
from daceml.module.onnx_model import ONNXModel
from tests.support.golden import raises
from tests.support.onnx_files import save_sum


class Four(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return a


def test_inputs_are_the_same_every_time_and_of_their_type():
    texts = ("2,3", "4:int64", "5:bool", "2:bfloat16")
    first, again = (make_inputs(Four(), texts).args for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert [t.dtype for t in first] == [torch.float32, torch.int64, torch.bool, torch.bfloat16]
    assert set(first[1].tolist()) <= {0, 1}


def test_an_onnx_file_knows_its_inputs(tmp_path: Path):
    model = ONNXModel(save_sum(tmp_path))
    assert [tuple(t.shape) for t in make_inputs(model).args] == [(2, 3), (2,)]
    a, index = make_inputs(model, dims=("N=5",)).args
    assert (tuple(a.shape), tuple(index.shape), index.dtype) == ((5, 3), (5,), torch.int64)
    assert [tuple(t.shape) for t in make_inputs(model, ("4,3", "4:int64")).args] == [(4, 3), (4,)]


def test_an_unknown_dimension(tmp_path: Path):
    with raises(ModelReferenceError, "sum.onnx", "M", "N", "--dim"):
        make_inputs(ONNXModel(save_sum(tmp_path)), dims=("M=5",))


def test_sizes_of_dimensions():
    assert parse_dims(["batch=8", "N=3"]) == {"batch": 8, "N": 3}
    with raises(ModelReferenceError, "--dim batch "):
        parse_dims(["batch"])


def test_inputs_from_a_file_are_positional_or_keywords(tmp_path: Path):
    torch.save((torch.ones(1), torch.ones(2), torch.ones(3), torch.ones(4)), tmp_path / "a.pt")
    made = make_inputs(Four(), file=tmp_path / "a.pt")
    assert [len(x) for x in made.args] == [1, 2, 3, 4]
    torch.save({name: torch.ones(1) for name in "abcd"}, tmp_path / "k.pt")
    assert sorted(make_inputs(Four(), file=tmp_path / "k.pt").kwargs) == list("abcd")


def test_a_wrong_number_of_inputs_is_refused_before_anything_is_compiled():
    facts = (
        "ReLU",
        "0 inputs",
        "'input'",
        "ReLU(input: torch.Tensor) -> torch.Tensor",
        "--input",
        "--inputs",
    )
    with raises(ModelReferenceError, *facts):
        make_inputs(nn.ReLU())


def test_inputs_that_exclude_each_other(tmp_path: Path):
    with raises(ModelReferenceError, "--input and --inputs"):
        make_inputs(nn.ReLU(), ("3",), file=tmp_path / "x.pt")
    with raises(ModelReferenceError, "--dim "):
        make_inputs(nn.ReLU(), ("3",), ("N=3",))


def test_inputs_larger_than_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inputs, "available_bytes", lambda: 10**9)
    with raises(ModelReferenceError, "40.0 GB", "1.0 GB"):
        make_inputs(nn.ReLU(), ("100000,100000",))
    assert make_inputs(nn.ReLU(), ("3,4",)).args[0].shape == (3, 4)
