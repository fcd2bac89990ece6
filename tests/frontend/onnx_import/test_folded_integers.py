"""Integers that follow from constants are what ONNX Runtime computes, wherever they are computed."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime

from daceml.module.onnx_model import ONNXModel
from tests.support.foreign_models import imported, parse

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


def test_values():
    parts = [numbered(number, constants, nodes) for number, (constants, nodes) in enumerate(CASES.values())]
    inputs, outputs, constants, nodes = zip(*parts, strict=True)
    made = parse(
        f"g ({', '.join(inputs)}) => ({', '.join(outputs)}) <{', '.join(constants)}> {{ {' '.join(nodes)} }}"
    )
    feeds = {f"x{number}": np.arange(4) for number in range(len(CASES))}
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for title, ours, theirs in zip(CASES, ONNXModel(made)(**feeds), session.run(None, feeds), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=title)


def numbered(number: int, constants: str, nodes: str) -> list[str]:
    """Input, output, constants and nodes of a case, whose names, all of one letter, have its number."""
    texts = ("int64[4] x", "int64[4] y", constants, f"{nodes} y = Add(x, c)")
    return [re.sub(r"\b([a-z])\b", rf"\g<1>{number}", text) for text in texts]


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
