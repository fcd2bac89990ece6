"""Local response normalization: each element by the squares of its neighbours in the channel dimension."""

from __future__ import annotations

from daceml.onnx_ops.native.pad import padded
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.sdfg.scalar import Index, Scalar


@implements("LRN", when=lambda X: None if X.rank >= 2 else "needs [N, C, ...]")
def local_response(
    X: Tensor, Y: Output, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
) -> None:
    before, rest = (size - 1) // 2, [0] * (X.rank - 2)
    x = padded(X, (0, before, *rest), (0, size - 1 - before, *rest), 0)

    def squares(n: Index, c: Index, *place: Index) -> Scalar:
        return sum_over((size,), lambda k: x[(n, c + k, *place)] * x[(n, c + k, *place)])

    total = compute(X.shape, squares)
    Y[:] = X / (bias + alpha / size * total) ** beta
