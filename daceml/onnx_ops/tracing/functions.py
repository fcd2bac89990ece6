"""Functions of tensors or scalars that numpy lacks, or whose numpy form cannot be lazy."""

from __future__ import annotations

from typing import Any

from daceml.onnx_ops.tracing.tensor import Tensor, elementwise
from daceml.sdfg.scalar import apply


def _apply(op: str, *operands: Any) -> Any:
    return (
        elementwise(op, *operands) if any(isinstance(o, Tensor) for o in operands) else apply(op, *operands)
    )


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`."""
    return _apply("where", condition, yes, no)


def rectify(x: Any) -> Any:
    """x where it is not less than 0, else 0; flat at 0, where either zero keeps its sign."""
    return _apply("rectify", x)


def maximum(a: Any, b: Any) -> Any:
    """The larger one; NaN if either is."""
    return _apply("max", a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller one; NaN if either is."""
    return _apply("min", a, b)


def erf(x: Any) -> Any:
    """The error function."""
    return _apply("erf", x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    return _apply("sigmoid", x)
