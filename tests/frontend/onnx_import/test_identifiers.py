"""Identifiers made of ONNX names."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.frontend.onnx_import.identifiers import RESERVED, Names, identifier


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/layer1/conv1/Conv_output_0", "layer1_conv1_Conv_output_0"),
        ("layer1.0.weight", "layer1_0_weight"),
        ("running_mean::next", "running_mean_next"),
        ("3", "v_3"),
        ("", "v"),
        ("lambda", "lambda_"),
        ("float", "float_"),
        ("exp", "exp_"),
        ("i0", "v_i0"),
        ("__state", "state"),
        ("größe", "gr_e"),
    ],
)
def test_an_identifier_resembles_its_name(name: str, expected: str):
    assert identifier(name) == expected


def test_names_never_collide_and_are_stable():
    names = Names()
    assert [names["a.b"], names["a_b"], names["a/b"], names["a.b"]] == ["a_b", "a_b_1", "a_b_2", "a_b"]
    assert names.fresh("a.b") == "a_b_3"


def test_a_numbered_name_can_be_taken_already():
    names = Names()
    assert [names["a_1"], names["a"], names["a:"]] == ["a_1", "a", "a_2"]


@given(st.lists(st.text(), unique=True))
def test_any_names_give_different_identifiers_that_generated_code_can_use(texts: list[str]):
    names = Names()
    given_names = [names[text] for text in texts]
    assert len(set(given_names)) == len(texts)
    for name in given_names:
        assert name.isidentifier() and name.isascii() and not name.startswith("_")
        assert name not in RESERVED and not keyword.iskeyword(name)
