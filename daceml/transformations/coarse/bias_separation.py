"""separate_biases: the bias of a linear layer is added in the loop that reads its result.

act(Gemm(A, W, b))            ->   act(Gemm(A, W) + b)
act(Reshape(Gemm(A, W, b)))   ->   act(Reshape(Gemm(A, W)) + b)      the last dimension stays

A vendor's kernel begins with the bias in every row of the result, written by a loop of its own, and adds the
products to it: without one it takes 0.88 to 0.95 of the time, from 128 x 768 x 768 to 3,136 x 512 x 2,048.
The loop that reads the result adds the bias for nothing. Whole networks gain little (0 to 2 %), and need no
packed weights for products of many rows. For training only in front of a sum: what other activations keep for
their gradient would be one array more, the biased one.
"""

from __future__ import annotations

from typing import Any

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms, rounded_once
from daceml.transformations.rewriting.replacement import Value

NAME = "separate_biases"
_SUMS = frozenset({"Add", "Sub"})
_LOOPS = _SUMS | {
    "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Mul",
    "Neg", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Swish", "Tanh",
}  # fmt: skip


@by_place
def separate_biases(network: Network, *, training: bool = False) -> int:
    """Let loops add the biases of products they read. Mutates the network, which is not lowered yet.

    Args:
        training: gradients follow.
    Returns:
        how many biases left their product.
    """
    readers = _SUMS if training else _LOOPS
    return rewrite_forms(network, [_Reshaped(readers), _Plain(readers)], marks=("Gemm",))


class _Separated(Form):
    """One product, and where its bias goes."""

    shape_of = ""

    def __init__(self, readers: frozenset[str]) -> None:
        super().__init__(NAME)
        self.readers = readers

    def refusal(self, a: Value, b: Value, product: Any, result: Value) -> str | None:
        """Why a bias stays in its product, whose result is read under a shape."""
        if (reason := rounded_once(a)) is not None:
            return reason
        if product.beta != 1:
            return "its addend is scaled"
        columns = result.shape[-1:]
        if b.rank != 1 or b.shape != columns:
            return "its addend is not a vector with one element per column"
        reading = result.graph.readers(result.array)
        if result.graph.is_result(result.array) or len(reading) != 1:
            return "its result has several readers or is returned to the caller"
        (reader,) = reading
        if not isinstance(reader, ONNXNode) or reader.domain or reader.op_type not in self.readers:
            return "its reader is not a generated kernel that can add the bias at no cost"
        return None


class _Plain(_Separated):
    def pattern(self, op: Any, a: Any, w: Any, b: Any) -> Any:
        return op.Gemm(a, w, b, name="product")

    def check(self, a: Any, b: Any, product: Any) -> str | None:
        (result,) = product.results
        return self.refusal(a, b, product, result)

    def rewrite(self, op: Any, a: Any, w: Any, b: Any, product: Any) -> Any:
        return op.Add(_unbiased(op, a, w, product), b)


class _Reshaped(_Separated):
    def pattern(self, op: Any, a: Any, w: Any, b: Any, shape: Any) -> Any:
        return op.Reshape(op.Gemm(a, w, b, name="product"), shape, name="reshape")

    def check(self, a: Any, b: Any, product: Any, reshape: Any) -> str | None:
        (result,) = reshape.results
        return self.refusal(a, b, product, result)

    def rewrite(self, op: Any, a: Any, w: Any, b: Any, shape: Any, product: Any, reshape: Any) -> Any:
        (result,) = reshape.results
        # what -1 stands for among symbolic sizes is known of the result alone
        sums = _unbiased(op, a, w, product)
        rows = op.Reshape(sums, shape, allowzero=reshape.allowzero, shape=result.shape, dtype=a.dtype)
        return op.Add(rows, b)


def _unbiased(op: Any, a: Any, w: Any, product: Any) -> Any:
    return op.Gemm(a, w, alpha=product.alpha, transA=product.transA, transB=product.transB)
