"""Losses of class scores."""

from __future__ import annotations

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import Value, op, rank_of


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
