"""Losses of class scores: an ignored target gets no gradient, and counts nothing in the mean."""

from __future__ import annotations

from collections.abc import Callable

import dace
import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.sdfg.scalar import DType, Index, Scalar, compute_type, index_value, literal

# What the loss of a target is multiplied with, at an index of the targets.
Factor = Callable[..., Scalar]


@vjp("NegativeLogLikelihoodLoss", wrt="input", name="NegativeLogLikelihoodLossGrad")
def negative_log_likelihood_vjp(
    target: Tensor,
    weight: Tensor | None,
    dloss: Tensor,
    dinput: Output,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> None:
    """-weight[target] dloss where the class is the target, divided by the weights of all in a mean."""
    dtype, classes = compute_type(dinput.dtype), dinput.shape[1]
    factor = _factor(target, weight, dloss, classes, dtype, reduction, ignore_index)
    zero = literal(0, dtype)

    def element(sample: Index, category: Index, *rest: Index) -> Scalar:
        found = target[(sample, *rest)].astype(dace.int64)
        return where(found == index_value(category), -factor(sample, *rest), zero)

    dinput[:] = compute(dinput.shape, element)


@vjp(
    "SoftmaxCrossEntropyLoss",
    wrt="scores",
    name="SoftmaxCrossEntropyLossGrad",
    extra={"log_prob": lambda scores: (scores.shape, scores.dtype)},
)
def softmax_cross_entropy_vjp(
    labels: Tensor,
    weights: Tensor | None,
    log_prob: Tensor,
    doutput: Tensor | None,
    dlog_prob: Tensor | None,
    dscores: Output,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> None:
    """(exp(log_prob) - one at the label) times what the label counts; log_prob may have a gradient, too."""
    dtype, classes = compute_type(dscores.dtype), dscores.shape[1]
    terms: list[Tensor] = []
    if doutput is not None:
        factor = _factor(labels, weights, doutput, classes, dtype, reduction, ignore_index)
        one, zero = literal(1, dtype), literal(0, dtype)

        def element(sample: Index, category: Index, *rest: Index) -> Scalar:
            found = labels[(sample, *rest)].astype(dace.int64)
            probability = np.exp(log_prob[(sample, category, *rest)])
            hit = where(found == index_value(category), one, zero)
            share = (probability - hit) * factor(sample, *rest)
            if ignore_index is None:
                return share
            # a score that is not finite must not turn an ignored sample's gradient into NaN
            return where(labels[(sample, *rest)] == ignore_index, zero, share)

        terms.append(compute(dscores.shape, element))
    if dlog_prob is not None:
        total = dlog_prob.sum(1, keepdims=True).materialize()
        terms.append(dlog_prob - np.exp(log_prob) * total)
    dscores[:] = terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _factor(
    target: Tensor,
    weight: Tensor | None,
    gradient: Tensor,
    classes: Index,
    dtype: DType,
    reduction: str,
    ignore_index: int | None,
) -> Factor:
    """The gradient of each target's loss, with its weight."""
    zero, one = literal(0, dtype), literal(1, dtype)

    def share(*index: Index) -> Scalar:
        """What a target counts. The forward node has compared targets with the number of classes."""
        value = one
        if weight is not None:
            found = target[index].astype(dace.int64)
            inside = maximum(minimum(found, index_value(classes - 1)), literal(0, dace.int64))
            value = weight[(inside,)].astype(dtype)
        return value if ignore_index is None else where(target[index] == ignore_index, zero, value)

    if reduction == "none":
        return lambda *index: gradient[index] * share(*index)
    whole = gradient.reshape(())
    if reduction == "sum":
        return lambda *index: whole.at(()) * share(*index)
    if weight is None and ignore_index is None:
        count = index_value(target.size, dtype)
        return lambda *index: whole.at(()) / count
    shares = compute(target.shape, share)
    total = shares.sum().materialize()

    def mean(*index: Index) -> Scalar:
        part = whole.at(()) * share(*index) / total.at(())
        # nothing counts: torch writes no gradient, and does not divide by zero
        return where(target[index] == ignore_index, zero, part) if ignore_index is not None else part

    return mean
