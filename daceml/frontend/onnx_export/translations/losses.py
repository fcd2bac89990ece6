"""Losses of class scores and of probabilities."""

from __future__ import annotations

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import Value, broadcast, op, rank_of, typed
from daceml.frontend.onnx_export.translations.precision import rounds_once
from daceml.frontend.onnx_export.translations.torch_kernels import kernel


@translates("aten.nll_loss_nd.default")
def nll_loss(
    self: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    """One node: torch's decomposition gives losses without reduction the shape of a single number where sizes
    are symbolic."""
    if rank_of(self) < 2:
        raise UntranslatableError("a single sample")
    reduced = ("none", "mean", "sum")[reduction]
    return op.NegativeLogLikelihoodLoss(self, target, weight, ignore_index=ignore_index, reduction=reduced)


@translates("aten.binary_cross_entropy.default")
@rounds_once
def binary_cross_entropy(
    self: Value, target: Value, weight: Value | None = None, reduction: int = 1
) -> Value:
    """A node for the losses of the elements: the slope of their spelled-out form is NaN at 0 and 1."""
    if self.dtype != target.dtype or (weight is not None and weight.dtype != self.dtype):
        raise UntranslatableError(f"probabilities of {self.dtype} and targets of {target.dtype}")
    losses = typed(kernel("BinaryCrossEntropy")(self, target), self)
    if weight is not None:
        losses = typed(op.Mul(losses, weight), self, shape=broadcast(losses, weight))
    if reduction == 0:
        return losses
    reduced = op.ReduceMean if reduction == 1 else op.ReduceSum
    return typed(reduced(losses, keepdims=0), dtype=self.dtype, shape=[])
