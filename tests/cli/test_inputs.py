"""Inputs from the command line, or from an ONNX file itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from daceml.cli.inputs import make_inputs, parse_dims, parse_input
from daceml.errors import ModelReferenceError
from daceml.frontend.onnx_model import ONNXModel
from tests.cli.onnx_files import save_sum


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("8,3,224,224", ((8, 3, 224, 224), "float32")),
        ("2, 128:int64", ((2, 128), "int64")),
        ("5", ((5,), "float32")),
        (":float64", ((), "float64")),
        ("0,3:bool", ((0, 3), "bool")),
    ],
)
def test_shapes_and_types(text: str, parsed: tuple[tuple[int, ...], str]):
    assert parse_input(text) == parsed


@pytest.mark.parametrize("text", ["", "3x4", "-1,3", "2,,N"])
def test_a_wrong_shape(text: str):
    with pytest.raises(ModelReferenceError) as caught:
        parse_input(text)
    assert str(caught.value) == (
        f"[DML501] --input {text} is no input\n"
        "  why:   a shape is whole numbers with commas between\n"
        "  fix:   write for example 8,3,224,224 or 2,128:int64"
    )


def test_a_wrong_type():
    with pytest.raises(ModelReferenceError, match="--input 3:float is no input") as caught:
        parse_input("3:float")
    assert caught.value.why.startswith("'float' is none of float32, float64")


def test_inputs_are_the_same_every_time_and_of_their_type():
    texts = ("2,3", "4:int64", "5:bool", "2:bfloat16")
    first, again = make_inputs(nn.ReLU(), texts, ()), make_inputs(nn.ReLU(), texts, ())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert [t.dtype for t in first] == [torch.float32, torch.int64, torch.bool, torch.bfloat16]
    assert set(first[1].tolist()) <= {0, 1}


def test_an_onnx_file_knows_its_inputs(tmp_path: Path):
    model = ONNXModel(save_sum(tmp_path))
    assert [tuple(t.shape) for t in make_inputs(model, (), ())] == [(2, 3), (2,)]
    a, index = make_inputs(model, (), ("N=5",))
    assert (tuple(a.shape), tuple(index.shape), index.dtype) == ((5, 3), (5,), torch.int64)
    assert [tuple(t.shape) for t in make_inputs(model, ("4,3", "4:int64"), ())] == [(4, 3), (4,)]


def test_an_unknown_dimension(tmp_path: Path):
    with pytest.raises(ModelReferenceError) as caught:
        make_inputs(ONNXModel(save_sum(tmp_path)), (), ("M=5",))
    assert str(caught.value) == (
        "[DML501] sum.onnx has no dimension named M\n"
        "  why:   its inputs have N\n"
        "  fix:   correct the name in --dim"
    )


def test_sizes_of_dimensions():
    assert parse_dims(["batch=8", "N=3"]) == {"batch": 8, "N": 3}
    with pytest.raises(ModelReferenceError, match="--dim batch is no size"):
        parse_dims(["batch"])
