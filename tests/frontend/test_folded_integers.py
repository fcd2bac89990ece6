"""Integers that follow from constants are what ONNX Runtime computes, wherever they are computed."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from daceml.frontend.onnx_model import ONNXModel
from tests.frontend.foreign import imported, parse

A, B = "int64[4] a = {-7, 7, -7, 5}", "int64[4] b = {2, -2, -2, 3}"
CASES = {
    "a division towards zero or below": (f"{A}, {B}", "c = Div(a, b)"),
    "a remainder": (f"{A}, {B}", "c = Mod(a, b)"),
    "a remainder as in C": (f"{A}, {B}", "c = Mod<fmod = 1>(a, b)"),
    "powers": ("int64[4] a = {-7, 7, -2, 5}, int64[4] b = {2, 3, 3, 0}", "c = Pow(a, b)"),
    "halves": ("float[4] a = {-2.5, 2.5, 0.5, 1.5}", "r = Round(a) c = Cast<to = 7>(r)"),
    "cut off": ("float[4] a = {-2.7, 2.7, 100.5, -1.5}", "c = Cast<to = 7>(a)"),
    "overflow": (
        "int32[4] a = {2147483647, 7, -7, 5}, int32[4] b = {1, -2, -2, 3}",
        "s = Add(a, b) c = Cast<to = 7>(s)",
    ),
    "overflow of bytes": (
        "uint8[4] a = {200, 100, 7, 5}, uint8[4] b = {100, 2, 2, 3}",
        "s = Mul(a, b) c = Cast<to = 7>(s)",
    ),
    "positions from the end": (f"{A}, int64[4] i = {{-1, 3, 1, 0}}", "c = GatherElements(a, i)"),
    "equal extremes": (f"{A}", "c = ArgMin<keepdims = 1, select_last_index = 1>(a)"),
    "the largest": (f"{A}, int64[1] k = {{2}}", "v, p = TopK(a, k) c = Concat<axis = 0>(v, p)"),
}


@pytest.mark.parametrize("title", CASES)
def test_values(title: str):
    constants, nodes = CASES[title]
    made = parse(f"g (int64[4] x) => (int64[4] y) <{constants}> {{ {nodes} y = Add(x, c) }}")
    x = np.arange(4)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(ONNXModel(made)(x), session.run(None, {"x": x})[0])


def test_what_follows_from_constants_is_no_operator():
    made = parse(f"g (int64[4] x) => (int64[4] y) <{A}, {B}> {{ c = Div(a, b) d = Mul(c, b) y = Add(x, d) }}")
    network = imported(made)
    operators = [node.op_type for node in network.state.nodes() if hasattr(node, "op_type")]
    assert operators == ["Add"]
    (folded,) = network.constants.values()
    assert folded.tolist() == [-6, 6, -6, 3]


def test_a_result_of_the_model_is_computed_as_it_was():
    made = parse(f"g (int64[4] x) => (int64[4] y, int64[4] c) <{A}, {B}> {{ c = Mul(a, b) y = Add(x, c) }}")
    y, c = ONNXModel(made)(np.zeros(4, np.int64))
    assert c.tolist() == [-14, -14, 14, 15] and y.tolist() == c.tolist()
