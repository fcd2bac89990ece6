"""Arithmetic and functions of one element against the ONNX reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = random(3, 1, 5)
Y = random(4, 1, seed=1)
SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 100.0, -100.0, 88.9], np.float32)
INTS, DIVISORS = np.array([7, -7, 7, -7, 0, 5], np.int32), np.array([2, 2, -2, -2, 3, 0], np.int32)
POSITIVE = np.abs(random(2, 7, seed=2)) + 0.1

UNARY = ["Abs", "Ceil", "Floor", "Neg", "Round", "Erf", "Exp", "Sign", "Sin", "Cos", "Tan", "Tanh", "Atan"]

CASES = {
    **{op: Case(op=op, inputs=[X]) for op in UNARY},
    **{op: Case(op=op, inputs=[X]) for op in ("Sinh", "Cosh", "Asinh")},
    **{f"{op} positive": Case(op=op, inputs=[POSITIVE]) for op in ("Log", "Sqrt", "Reciprocal")},
    **{
        f"{op} float64": Case(op=op, inputs=[POSITIVE.astype(np.float64)], rtol=1e-13)
        for op in ("Exp", "Log", "Erf")
    },
    **{f"{op} broadcast": Case(op=op, inputs=[X, Y]) for op in ("Add", "Sub", "Mul", "Div")},
    "Add rank 0 and 2": Case(op="Add", inputs=[np.array(2, np.float32), random(2, 3)]),
    "Add rank 0 only": Case(op="Add", inputs=[np.array(2, np.float32), np.array(3, np.float32)]),
    "Add a constant": Case(op="Add", inputs=[X, np.array([0.1], np.float32)], constants=[1]),
    "Add of nothing": Case(op="Add", inputs=[random(0, 3), random(1, 3)]),
    "Add symbolic": Case(op="Add", inputs=[random(6, 5), random(5)], symbolic={6: "N"}),
    "Div truncates": Case(
        op="Div", inputs=[INTS, DIVISORS], expected=[np.array([3, -3, -3, 3, 0, 0], np.int32)]
    ),
    "Mod Python": Case(op="Mod", inputs=[INTS[:5], DIVISORS[:5]]),
    "Mod C": Case(op="Mod", inputs=[INTS[:5], DIVISORS[:5]], attributes={"fmod": 1}),
    "Mod float": Case(op="Mod", inputs=[X * 9, Y], attributes={"fmod": 1}),
    "Add int8 wraps": Case(
        op="Add",
        inputs=[np.array([127, -128], np.int8), np.array([1, -1], np.int8)],
        expected=[np.array([-128, 127], np.int8)],
    ),
    **{
        f"Pow {p}": Case(op="Pow", inputs=[POSITIVE, np.array(p, np.float32)], constants=[1])
        for p in (0.5, 1.5, -0.5, 2.0, 3.0, -2.0, 0.0, 2.7)
    },
    "Pow of arrays": Case(op="Pow", inputs=[POSITIVE, random(7)]),
    "Pow of integers": Case(
        op="Pow", inputs=[np.array([2, -3, 5], np.int64), np.array([10, 3, 0], np.int64)]
    ),
    "Pow float to int": Case(op="Pow", inputs=[X, np.array(3, np.int64)]),
    "Exp special": Case(op="Exp", inputs=[SPECIAL]),
    "Max NaN": Case(op="Max", inputs=[SPECIAL, SPECIAL[::-1].copy(), np.zeros(11, np.float32)]),
    "Min NaN": Case(op="Min", inputs=[SPECIAL, SPECIAL[::-1].copy()]),
    "Max int": Case(op="Max", inputs=[INTS, DIVISORS]),
    "Sum of three": Case(op="Sum", inputs=[X, Y, X]),
    "Mean of two": Case(op="Mean", inputs=[X, Y], expected=[(X + Y) / 2]),
    "Clip both": Case(
        op="Clip", inputs=[SPECIAL, np.array(-1, np.float32), np.array(2, np.float32)], constants=[1]
    ),
    "Clip low": Case(op="Clip", inputs=[X, np.array(0, np.float32)]),
    "Clip high": Case(op="Clip", inputs=[X, None, np.array(0.25, np.float32)], constants=[2]),
    "Clip 6": Case(op="Clip", inputs=[X.astype(np.float64)], attributes={"min": -0.5, "max": 0.5}, version=6),
    "Clip int": Case(op="Clip", inputs=[INTS, np.array(-2, np.int32), np.array(6, np.int32)]),
    "IsNaN": Case(op="IsNaN", inputs=[SPECIAL]),
    "IsInf": Case(op="IsInf", inputs=[SPECIAL]),
    "IsInf negative": Case(op="IsInf", inputs=[SPECIAL], attributes={"detect_positive": 0}),
    "Where": Case(op="Where", inputs=[X > 0, X, Y]),
    "BitwiseAnd": Case(op="BitwiseAnd", inputs=[INTS, DIVISORS]),
    "BitwiseNot": Case(op="BitwiseNot", inputs=[INTS]),
    "BitShift": Case(
        op="BitShift",
        inputs=[np.array([1, 200], np.uint8), np.array([3, 1], np.uint8)],
        attributes={"direction": "LEFT"},
    ),
    "half": Case(op="Mul", inputs=[X.astype(np.float16), Y.astype(np.float16)], rtol=0, atol=0),
    "half exp": Case(op="Exp", inputs=[X.astype(np.float16)], rtol=1e-3),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
