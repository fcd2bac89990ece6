"""Losses of class scores: weights, ignored targets, reductions, more than two dimensions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from daceml.onnx_ops.registry import KINDS
from tests.support.implementation_pairs import Case, agree
from tests.support.node_gradients import Node, gradient_nodes, run


def scores(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def loss(
    op: str,
    *shape: int,
    reduction: str = "mean",
    ignore: int | None = None,
    weighted: bool = False,
    dtype: torch.dtype = torch.float32,
    target: torch.Tensor | None = None,
    **more: Any,
) -> Case:
    crossed = op == "SoftmaxCrossEntropyLoss"
    names = ("scores", "labels", "weights") if crossed else ("input", "target", "weight")
    x = scores(*shape, dtype=dtype)
    x = x if crossed else functional.log_softmax(x, 1)
    if target is None:
        generator = torch.Generator().manual_seed(3)
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
        if ignore is not None:
            target.view(-1)[::3] = ignore
    function = functional.cross_entropy if crossed else functional.nll_loss
    weight = scores(shape[1], dtype=dtype).abs() + 0.5 if weighted else None
    given = {"ignore_index": ignore} if ignore is not None else {}

    def reference(**operands: Any) -> torch.Tensor:
        return function(operands[names[0]], target.long(), operands[names[2]], reduction=reduction, **given)

    result = torch.empty(() if reduction != "none" else target.shape, dtype=dtype)
    outputs = {"output": result, "log_prob": x} if crossed else {"loss": result}
    return Case(
        op=op,
        inputs={names[0]: x, names[1]: target, names[2]: weight},
        outputs=outputs,
        result="output" if crossed else "loss",
        attributes={"reduction": reduction, **given},
        reference=reference,
        wanted=(names[0],),
        **more,
    )


CASES = {
    f"{op} {title}": loss(op, *shape, **options)
    for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    for title, shape, options in (
        ("mean", (7, 5), {}),
        ("sum, weights", (4, 3, 2, 5), {"reduction": "sum", "weighted": True}),
        ("none, ignored", (5, 3, 4), {"reduction": "none", "ignore": 1}),
        ("mean, weights, ignored", (5, 3, 4), {"weighted": True, "ignore": -100, "dtype": torch.float64}),
        ("mean, ignored, bfloat16", (9, 4), {"ignore": 2, "dtype": torch.bfloat16}),
        ("one class", (3, 1), {}),
        ("positions of 32 bits", (3, 4), {"target": torch.tensor([0, 3, 1], dtype=torch.int32)}),
        ("symbolic batch", (11, 5), {"symbolic": {11: "N"}}),
    )
}


def test_gradients_are_those_of_torch():
    agree(CASES)


def test_where_everything_is_ignored_there_is_no_gradient():
    case = loss("SoftmaxCrossEntropyLoss", 3, 4, ignore=-100, target=torch.full((3,), -100))
    case.inputs["scores"][0, 1] = torch.inf
    forward = Node(op=case.op, inputs=case.inputs, outputs=case.outputs, attributes=case.attributes)
    (results,) = run(forward).results
    cotangents = {"output": torch.tensor(1.0)}
    nodes = gradient_nodes(case.op, case.inputs, results, cotangents, ["scores"], case.attributes)
    assert torch.equal(run(*nodes).results[0]["dscores"], torch.zeros(3, 4))


@pytest.mark.parametrize("both", [True, False])
def test_a_gradient_of_the_logarithms_of_probabilities(both: bool):
    case = loss("SoftmaxCrossEntropyLoss", 5, 3, 2)
    forward = Node(op=case.op, inputs=case.inputs, outputs=case.outputs, attributes=case.attributes)
    (results,) = run(forward, allowed=KINDS).results
    upstream = torch.randn(5, 3, 2)
    cotangents = {"log_prob": upstream, **({"output": torch.tensor(0.5)} if both else {})}
    nodes = gradient_nodes(case.op, case.inputs, results, cotangents, ["scores"], case.attributes)
    x = case.inputs["scores"].clone().requires_grad_()
    logarithm = functional.log_softmax(x, 1)
    total = (logarithm * upstream).sum()
    if both:
        total = total + 0.5 * functional.nll_loss(logarithm, case.inputs["labels"])
    (expected,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(run(*nodes).results[0]["dscores"], expected)
