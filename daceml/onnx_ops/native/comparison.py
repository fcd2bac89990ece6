"""Comparisons and logic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor

_ROWS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}


def _implementation(function: Callable[[Tensor, Tensor], Any]) -> Callable[..., None]:
    def comparison(A: Tensor, B: Tensor, C: Output) -> None:
        C[:] = function(A, B)

    return comparison


for _op, _function in _ROWS.items():
    implements(_op)(_implementation(_function))
