"""split_dropout: Dropout(x) -> x * mask / (1 - ratio), with a mask that is drawn by itself.

The draw writes a byte for each element, and the arithmetic joins the loops around it, in the backward pass
as well.
"""

from __future__ import annotations

from typing import Any

import dace
import numpy as np

from daceml.onnx_ops.domain.dropout import DOMAIN
from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms

NAME = "split_dropout"


@by_place
def split_dropout(network: Network) -> int:
    """Make a draw and a product of each Dropout in training. Mutates the network, which is not lowered yet.

    Returns:
        how many were split.
    """
    return rewrite_forms(network, (_Masked(NAME), _Plain(NAME)), marks=("Dropout",))


class _Dropout(Form):
    """Dropout(data, ratio, training_mode)"""

    shape_of = "data"
    masked: bool

    def pattern(self, op: Any, data: Any, ratio: Any, training_mode: Any) -> Any:
        return op.Dropout(data, ratio, training_mode, results=1 + self.masked, name="dropout")

    def check(self, ratio: Any, training_mode: Any, dropout: Any) -> str | None:
        if dropout.seed is not None:
            return "it has its own seed"
        if training_mode.constant is None or not np.all(training_mode.constant):
            return "it is not known to be in training"
        if ratio.constant is None:
            return "its ratio is not constant"
        if not 0 < float(ratio.constant.reshape(-1)[0]) < 1:
            return "it draws nothing: it keeps all elements or none"
        return None

    def rewrite(self, op: Any, data: Any, ratio: Any) -> Any:
        mask = op.DropoutMask(ratio, domain=DOMAIN, shape=data.shape, dtype=dace.bool_)
        product = op.DropoutProduct(data, mask, ratio, domain=DOMAIN, shape=data.shape, dtype=data.dtype)
        return (product, mask) if self.masked else product


class _Masked(_Dropout):
    """One whose mask is a result, too"""

    masked = True


class _Plain(_Dropout):
    """One whose mask nobody reads"""

    masked = False
