"""Sums over the dimensions that broadcasting added."""

from __future__ import annotations

from daceml.onnx_ops.tracing.tensor import Tensor


def summed_to(terms: Tensor, like: Tensor) -> Tensor:
    """Terms summed over what an operand was broadcast to, in the operand's shape."""
    lead = terms.rank - like.rank
    ones = [lead + d for d, n in enumerate(like.shape) if n == 1 and terms.shape[lead + d] != 1]
    if ones:
        terms = terms.sum(ones, keepdims=True)
    return terms.sum(tuple(range(lead))) if lead else terms
