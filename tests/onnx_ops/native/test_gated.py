"""Gated and causal parts of language models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises


def causal(taps: int, *, state: bool = True, bias: bool = True, activation: str = "none") -> Case:
    x, w = random(2, 3, 5), random(3, 1, taps, seed=1)
    b, past = random(3, seed=2) if bias else None, random(2, 3, taps - 1, seed=3) if state else None
    before = np.zeros((2, 3, taps - 1), np.float32) if past is None else past
    padded = torch.from_numpy(np.concatenate([before, x], 2))
    y = functional.conv1d(padded, torch.from_numpy(w), None if b is None else torch.from_numpy(b), groups=3)
    y = y if activation == "none" else functional.silu(y)
    return Case(
        op="CausalConvWithState",
        inputs=[x, w, b, past],
        attributes={"activation": activation},
        expected=[y.numpy(), padded[:, :, 5:].numpy()],
        version=27,
    )


A, B = random(3, 5), random(3, 5, seed=1)
CASES = {
    "gate": Case(
        op="SwiGLU",
        inputs=[A, B],
        attributes={"alpha": 1.7},
        version=28,
        expected=[A / (1 + np.exp(-1.7 * A)) * B],
    ),
    "causal": causal(4),
    "causal, longer than the input": causal(8, activation="silu"),
    "causal, alone": causal(3, state=False, bias=False, activation="swish"),
    "one tap": causal(1),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_an_unknown_activation_is_refused() -> None:
    case = causal(2)
    case.attributes = {"activation": "relu"}
    with raises(NoImplementationError, "activation", "'relu'"):
        lowered(case)
