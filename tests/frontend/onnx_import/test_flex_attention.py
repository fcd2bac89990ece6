"""FlexAttention: the standard's definition, with modifiers of scores and probabilities, against numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import onnx.parser

from daceml.errors import NoImplementationError
from daceml.frontend.onnx_import.control_flow import inline_control_flow
from daceml.module.onnx_model import ONNXModel
from tests.support.golden import raises

HEADER = '<ir_version: 10, opset_import: ["" : 22, "ai.onnx.preview" : 1]>'


def model(shapes: tuple[str, str, str, str], modifiers: str = "", kind: str = "float") -> onnx.ModelProto:
    q, k, v, y = (f"{kind}[{shape}]" for shape in shapes)
    return onnx.parser.parse_model(
        f"{HEADER} g ({q} q, {k} k, {v} v) => ({y} y) "
        f"{{ y = ai.onnx.preview.FlexAttention {modifiers} (q, k, v) }}"
    )


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, score, probability) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = score(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return probability(weights / weights.sum(-1, keepdims=True)) @ v


CASES = {
    "plain": ("", lambda s: s, lambda p: p),
    "soft cap": (
        "<score_mod = m (float[B,H,L,S] s) => (float[B,H,L,S] o) <float c = {2}> "
        "{ d = Div(s, c) t = Tanh(d) o = Mul(t, c) }>",
        lambda s: 2 * np.tanh(s / 2),
        lambda p: p,
    ),
    "both": (
        "<score_mod = m (float[B,H,L,S] s) => (float[B,H,L,S] o) { o = Neg(s) }, "
        "prob_mod = n (float[B,H,L,S] p) => (float[B,H,L,S] o) { o = Mul(p, p) }>",
        lambda s: -s,
        lambda p: p * p,
    ),
}


def test_values():
    cases = list(product(CASES, (1, 3)))
    nodes = " ".join(
        f"y{i} = ai.onnx.preview.FlexAttention {CASES[title][0]} (q{i}, k, v)"
        for i, (title, _) in enumerate(cases)
    )
    queries = ", ".join(f"float[2,{2 * groups},5,4] q{i}" for i, (_, groups) in enumerate(cases))
    results = ", ".join(f"float[2,{2 * groups},5,3] y{i}" for i, (_, groups) in enumerate(cases))
    made = onnx.parser.parse_model(
        f"{HEADER} g ({queries}, float[2,2,7,4] k, float[2,2,7,3] v) => ({results}) {{ {nodes} }}"
    )
    rng = np.random.default_rng(0)
    shapes = [*((2, 2 * groups, 5, 4) for _, groups in cases), (2, 2, 7, 4), (2, 2, 7, 3)]
    *q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    compiled = ONNXModel(made)
    for (title, groups), mine, y in zip(cases, q, compiled(*q, k, v), strict=True):
        wanted = reference(mine, k, v, *CASES[title][1:])
        np.testing.assert_allclose(
            y, wanted, rtol=1e-5, atol=1e-6, err_msg=f"{title}, {groups} heads a group"
        )
    assert compiled.program, "it does not run outside"


def test_operands_whose_types_nobody_declares_leave_the_node_as_it_is():
    made = onnx.parser.parse_model(
        f"{HEADER} g (float[1,1,2,2] q) => (float[1,1,2,2] y) "
        "{ k = Neg(q) y = ai.onnx.preview.FlexAttention (q, k, k) }"
    )
    assert inline_control_flow(made) is made
    with raises(NoImplementationError, "FlexAttention"):
        ONNXModel(made)(np.ones((1, 1, 2, 2), np.float32))
