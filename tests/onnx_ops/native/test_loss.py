"""Losses of class scores, against torch: weights, ignored targets, any number of dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import ExecutionError, NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises
from tests.support.operator_programs import program

WEIGHT = np.abs(random(4, seed=9)) + 0.1


def loss(
    op: str, scores: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None, **options: Any
) -> Case:
    softmax = op == "SoftmaxCrossEntropyLoss"
    function = functional.cross_entropy if softmax else functional.nll_loss
    x = torch.from_numpy(scores)
    expected: list[np.ndarray | None] = [
        function(
            x,
            torch.from_numpy(target).long(),
            None if weight is None else torch.from_numpy(weight),
            reduction=options.get("reduction", "mean"),
            ignore_index=options.get("ignore_index", -(10**6)),
        ).numpy()
    ]
    if softmax:
        expected.append(x.log_softmax(1).numpy())
    return Case(op=op, inputs=[scores, target, weight], attributes=options, expected=expected)


X, T = random(5, 4, scale=3), np.array([0, 3, 1, 3, 2])
X3, T3 = random(2, 4, 3, 1, scale=3), np.array([[[0], [3], [1]], [[3], [2], [2]]], np.int32)
IGNORED = np.array([0, 7, 1, 7, 2])
INFINITE = np.where(np.eye(5, 4) > 0, np.float32(-np.inf), X)
CASES = {
    **{
        f"{op}, {reduction}, {'weighted' if w is not None else 'plain'}": loss(
            op, X, T, w, reduction=reduction
        )
        for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        for reduction in ("none", "sum", "mean")
        for w in (None, WEIGHT)
    },
    "space": loss("SoftmaxCrossEntropyLoss", X3, T3, WEIGHT),
    "space, none": loss("NegativeLogLikelihoodLoss", X3, T3, reduction="none"),
    "ignored beyond the classes": loss("NegativeLogLikelihoodLoss", X, IGNORED, WEIGHT, ignore_index=7),
    "ignored below": loss("SoftmaxCrossEntropyLoss", X, np.where(IGNORED == 7, -1, T), ignore_index=-1),
    "an ignored infinity": loss(
        "NegativeLogLikelihoodLoss", INFINITE, np.array([0, 3, 1, 0, 0]), reduction="none", ignore_index=0
    ),
    "all ignored is NaN": loss("NegativeLogLikelihoodLoss", X, np.full(5, 7), ignore_index=7),
    "float64": loss("SoftmaxCrossEntropyLoss", X.astype(np.float64), T, WEIGHT.astype(np.float64)),
    "one class": loss("SoftmaxCrossEntropyLoss", X[:, :1], np.zeros(5, np.int64), reduction="none"),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_a_target_outside_is_an_error() -> None:
    text = (
        "g (float[5, 4] X, int64[5] T) => (float Y) "
        "{ Y = NegativeLogLikelihoodLoss <ignore_index = 9> (X, T) }"
    )
    compiled, x = program(text, ("native",)), torch.randn(5, 4)
    target = torch.tensor([0, 9, 3, 1, 2])
    torch.testing.assert_close(compiled([x, target])[0], functional.nll_loss(x, target, ignore_index=9))
    with raises(ExecutionError, "[0, 4)"):
        compiled([x, torch.tensor([0, 9, 3, 1, -1])])


def test_an_unknown_reduction_is_refused() -> None:
    case = CASES["space"]
    case = Case(op=case.op, inputs=case.inputs, attributes={"reduction": "median"}, expected=case.expected)
    with raises(NoImplementationError, "reduction", "'median'"):
        lowered(case)
