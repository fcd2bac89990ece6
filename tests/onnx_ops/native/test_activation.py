"""Activations, far out too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = np.concatenate([random(40) * 3, [0, -0.0, 100, -100, 50, -50]]).astype(np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 1e-40, 88.9, -104], np.float32)
OPS = [
    "Relu",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "Sigmoid",
    "HardSigmoid",
    "HardSwish",
    "Softplus",
    "Softsign",
    "Mish",
    "ThresholdedRelu",
    "Gelu",
    "Shrink",
]
EXACT = {"Relu", "Elu", "Celu", "Sigmoid", "Softplus", "Softsign", "Mish", "ThresholdedRelu", "Shrink"}
FINITE = np.array([100.0, -100, 500, -500, 0], np.float32)

CASES = {
    **{op: Case(op=op, inputs=[X], rtol=2e-6) for op in OPS if op != "Mish"},
    # The reference rounds attributes (0.01, 0.2) to float32, and its Gelu is a float32 one.
    **{
        f"{op} float64": Case(
            op=op, inputs=[X[:41].astype(np.float64)], rtol=1e-12 if op in EXACT else 1e-6, atol=1e-7
        )
        for op in OPS
    },
    "Gelu float64 of torch": Case(
        op="Gelu",
        inputs=[X.astype(np.float64)],
        rtol=1e-13,
        atol=1e-15,
        expected=[torch.nn.functional.gelu(torch.from_numpy(X.astype(np.float64))).numpy()],
    ),
    "Elu alpha": Case(op="Elu", inputs=[X], attributes={"alpha": 0.3}),
    "Gelu tanh": Case(op="Gelu", inputs=[X], attributes={"approximate": "tanh"}, atol=2e-6),
    "PRelu": Case(op="PRelu", inputs=[random(2, 3, 4), random(3, 1)]),
    "Swish": Case(
        op="Swish",
        inputs=[X],
        attributes={"alpha": 1.5},
        version=24,
        expected=[(X / (1 + np.exp(np.minimum(-1.5 * X.astype(np.float64), 700)))).astype(np.float32)],
    ),
    "Softplus far": Case(
        op="Softplus", inputs=[FINITE], expected=[np.array([100, 0, 500, 0, np.log(2)], np.float32)]
    ),
    "Mish far": Case(op="Mish", inputs=[FINITE], expected=[np.array([100, 0, 500, 0, 0], np.float32)]),
    "Relu NaN": Case(
        op="Relu", inputs=[SPECIAL], expected=[np.array([np.nan, np.inf, 0, 1e-40, 88.9, 0], np.float32)]
    ),
    "Sigmoid special": Case(
        op="Sigmoid", inputs=[SPECIAL], expected=[np.array([np.nan, 1, 0, 0.5, 1, 0], np.float32)]
    ),
    "Softplus special": Case(
        op="Softplus",
        inputs=[SPECIAL],
        expected=[np.array([np.nan, np.inf, 0, np.log(2), 88.9, 0], np.float32)],
    ),
    "Relu float16": Case(op="Relu", inputs=[X.astype(np.float16)]),
    "Relu int8": Case(op="Relu", inputs=[np.array([-3, 3], np.int8)]),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
