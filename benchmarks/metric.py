"""The accuracy metric of the package, under the name by which benchmarks know it."""

from __future__ import annotations

from daceml.verification.accuracy import (
    EPS_PER_SQRT_DEPTH,
    ERROR_OVER_EAGER,
    MEDIAN_OVER_EAGER,
    Accuracy,
    TensorError,
    compare,
    tensor_error,
)

__all__ = [
    "EPS_PER_SQRT_DEPTH",
    "ERROR_OVER_EAGER",
    "MEDIAN_OVER_EAGER",
    "Accuracy",
    "TensorError",
    "compare",
    "tensor_error",
]
