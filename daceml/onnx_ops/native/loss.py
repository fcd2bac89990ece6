"""Losses of class scores: the score of each target is read where it is, nothing is made one-hot."""

from __future__ import annotations

import dace
import numpy as np

from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, literal


@implements("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    loss: Output,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> None:
    _reduced(input, target, weight, loss, reduction, ignore_index)


@implements("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    output: Output,
    log_prob: Output | None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> None:
    shifted = scores - scores.max(1, keepdims=True).materialize()
    # The sums are an array of their own; the scores stay what they are.
    log_probability = shifted - np.log(np.exp(shifted).sum(1, keepdims=True)).materialize()
    if log_prob is not None:
        log_prob[:] = log_probability
    _reduced(log_probability, labels, weights, output, reduction, ignore_index)


def _reduced(
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    loss: Output,
    reduction: str,
    ignore_index: int | None,
) -> None:
    """-weight[target] * scores[target], and its sum or weighted mean; an ignored target counts nothing."""
    if reduction not in ("none", "sum", "mean"):
        raise Refused(f"there is no reduction {reduction!r}")
    classes = target if ignore_index is None else where(target == ignore_index, 0, target)
    check_positions(classes, scores.shape[1], lowest=0)
    dtype = compute_type(scores.dtype)

    def share(*index: Index) -> Scalar:
        """What a target counts."""
        found = classes[index].astype(dace.int64)
        value = literal(1, dtype) if weight is None else weight[(found,)]
        if ignore_index is None:
            return value
        return where(target[index] == ignore_index, literal(0, dtype), value)

    def element(*index: Index) -> Scalar:
        found = classes[index].astype(dace.int64)
        score = -scores[(index[0], found, *index[1:])]
        if ignore_index is not None:
            # an infinite score that is ignored must not become NaN
            score = where(target[index] == ignore_index, literal(0, dtype), score)
        return score if weight is None else score * share(*index)

    losses = compute(target.shape, element)
    match reduction:
        case "none":
            loss[:] = losses
        case "sum":
            loss[:] = losses.sum().reshape(loss.shape)
        case _ if weight is None and ignore_index is None:
            loss[:] = losses.mean().reshape(loss.shape)
        case _:
            loss[:] = (losses.sum() / compute(target.shape, share).sum()).reshape(loss.shape)
