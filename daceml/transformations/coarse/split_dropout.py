"""Dropout(x) -> x * mask / (1 - ratio), with a mask that is drawn by itself.

The draw writes a byte for each element, and the arithmetic joins the loops around it.
"""

from __future__ import annotations

from typing import Any

import dace
import numpy as np

from daceml.onnx_ops.dropout import DOMAIN
from daceml.transformations.pattern import PatternOps
from daceml.transformations.replacement import Operator, ReplacementOps, Value
from daceml.transformations.rewrite import Rewrite


class SplitDropout(Rewrite):
    """Dropout in training becomes a draw and a product.

    Args:
        masked: look for those whose mask is a result; for those without one otherwise.
    """

    def __init__(self, *, masked: bool) -> None:
        self.masked = masked

    def pattern(self, op: PatternOps, data: Any, ratio: Any, training_mode: Any) -> Any:
        return op.Dropout(data, ratio, training_mode, results=1 + self.masked, name="dropout")

    def check(self, data: Value, ratio: Value, training_mode: Value, dropout: Operator) -> str | None:
        if dropout.seed is not None:
            return "it has a seed of its own"
        if training_mode.constant is None or not np.all(training_mode.constant):
            return "it is not known to be in training"
        if ratio.constant is None:
            return "its ratio is no constant"
        if not 0 < float(ratio.constant.reshape(-1)[0]) < 1:
            return "it draws nothing: all is kept, or nothing"
        return None

    def rewrite(self, op: ReplacementOps, data: Value, ratio: Value) -> Any:
        mask = op.DropoutMask(ratio, domain=DOMAIN, shape=data.shape, dtype=dace.bool_)
        product = op.DropoutProduct(data, mask, ratio, domain=DOMAIN, shape=data.shape, dtype=data.dtype)
        return (product, mask) if self.masked else product
