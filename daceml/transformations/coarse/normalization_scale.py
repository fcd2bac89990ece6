"""A normalization that scales by 1, and a product: the product's factor is the normalization's scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from daceml.transformations.coarse.forms import Form, rounded_once
from daceml.transformations.coarse.last_dimensions import fits_rows


class NormalizationScale(Form):
    """Normalization(x, 1) * scale -> Normalization(x, scale)

    Args:
        title: of the pass.
        op_type: the normalization, over the last dimensions from `axis` on.
    """

    def __init__(self, title: str, op_type: str) -> None:
        super().__init__(title)
        self.op_type = op_type

    def pattern(self, op: Any, x: Any, one: Any, scale: Any) -> Any:
        return op.Mul(getattr(op, self.op_type)(x, one, name="normal"), scale)

    def check(self, x: Any, one: Any, scale: Any, normal: Any) -> str | None:
        if one.constant is None or not np.all(one.constant == 1):
            return "it is scaled already"
        return fits_rows(scale, x, normal.axis % x.rank) or rounded_once(x)

    def rewrite(self, op: Any, x: Any, scale: Any, normal: Any) -> Any:
        made = getattr(op, self.op_type)
        return made(x, scale, axis=normal.axis, epsilon=normal.epsilon, shape=x.shape)
