"""`--input`: shapes, element types, ranges; and how wrong ones are refused."""

from __future__ import annotations

import pytest
import torch

from daceml.cli.input_text import TYPES, parse_input
from daceml.errors import ModelReferenceError
from tests.support.golden import raises


def draw(text: str) -> torch.Tensor:
    return parse_input(text).draw(torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("text", "shape", "kind"),
    [
        ("8,3,224,224", (8, 3, 224, 224), "float32"),
        ("2, 128:int64", (2, 128), "int64"),
        ("5", (5,), "float32"),
        ("5,", (5,), "float32"),
        (":float64", (), "float64"),
        ("0,3:bool", (0, 3), "bool"),
        ("3=1", (3,), "float32"),
    ],
)
def test_shapes_and_types(text: str, shape: tuple[int, ...], kind: str):
    parsed = parse_input(text)
    assert (parsed.shape, parsed.kind) == (shape, kind)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_can_be_drawn(kind: str):
    drawn = draw(f"3,0,2:{kind}")
    assert (tuple(drawn.shape), str(drawn.dtype)) == ((3, 0, 2), f"torch.{kind}")


def test_a_range_of_whole_numbers_includes_both_ends():
    drawn = draw("1000:int64=-1..1")
    assert drawn.unique().tolist() == [-1, 0, 1]
    assert draw("1000:int64").unique().tolist() == [0, 1]


def test_a_range_of_floats_is_uniform():
    drawn = draw("1000:float64=-0.5..1.5e0")
    assert -0.5 <= float(drawn.min()) < -0.45 and 1.45 < float(drawn.max()) <= 1.5
    assert 0.4 < float(drawn.mean()) < 0.6


def test_one_number_is_a_constant():
    assert draw("2,2=1").tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert draw("2:int8=-128").tolist() == [-128, -128]
    assert draw("2:bool=1").tolist() == [True, True]


@pytest.mark.parametrize(
    "text", ["1" * 5000, "2,2:int64=" + "1" * 5000, "2:int64=0.." + "9" * 5000, ",".join(["1"] * 2000)]
)
def test_texts_beyond_any_tensor_are_refused_and_cut(text: str):
    with raises(ModelReferenceError, "at most") as refused:
        parse_input(text)
    assert len(str(refused.value)) < 500


def test_the_ends_of_64_bits():
    assert draw("2:int64=9223372036854775807").tolist() == [2**63 - 1] * 2
    whole = draw("100:int64=-9223372036854775808..9223372036854775807")
    assert int(whole.min()) < 0 < int(whole.max())


@pytest.mark.parametrize("text", ["", "3x4", "-1,3", "2,,N", "2,,3", "=3"])
def test_a_wrong_shape(text: str):
    with raises(ModelReferenceError, f"--input {text} ", "8,3,224,224", "2,128:int64=0..999"):
        parse_input(text)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("3:float", ["'float'", "float32, float64, float16"]),
        ("3:int64=", ["''", "LOW..HIGH"]),
        ("3:int64=5..", ["'5..'", "LOW..HIGH"]),
        ("3:int64=a..b", ["'a..b'", "LOW..HIGH"]),
        ("3:int64=5..1", ["range 5..1 "]),
        ("3:int64=0.5..1", ["of int64 "]),
        ("3:uint8=0..256", ["of uint8 ", "0..255"]),
        ("3:int8=-129..0", ["of int8 ", "-128..127"]),
        ("3:bool=0..2", ["of bool ", "0..1"]),
    ],
)
def test_a_wrong_type_or_range(text: str, facts: list[str]):
    with raises(ModelReferenceError, f"--input {text} ", *facts):
        parse_input(text)
