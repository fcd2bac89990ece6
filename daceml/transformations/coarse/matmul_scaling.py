"""scale_products: a product of matrices that is scaled by a constant scales itself, where that saves a loop.

Gemm(A, B) * s   ->   Gemm(A, B, alpha=s)
Gemm(A, B) / s   ->   Gemm(A, B, alpha=1 / s)
MatMul(A, B) * s ->   Gemm(A, B, alpha=s)      matrices

Most kernels scale each sum when it is complete, and round where the loop did, and 1 / s once more unless s is
a power of two; MKL scales an operand on some processors. Where loops read the result, one of them scales it
for nothing, and it stays (the scale in front of a softmax is in the softmax's loop). Left out is what could
leave the range of a type where the steps do not: factors beyond 1 and tiny ones, a factor of an operand moved
behind the product, or one of the result moved to an operand, which a product with batches would need. So are
negative factors, which give a sum of zeros another sign. A sum that overflows before it is scaled may become
finite. On one thread 256 x 256 x 256 takes 0.9 of the time, with its gradients, too.
Source: Rausch et al., DaCeML, ICS '22, figure 18.
"""

from __future__ import annotations

import math
from typing import Any

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms, rounded_once
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.replacement import Value

NAME = "scale_products"
# a factor of scores or of an average is larger; times it, what is not tiny keeps all digits
SMALLEST = 2.0**-16
_OUTSIDE = "an operand times it could leave the range of its type, or a sum of zeros change its sign"
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# What vendors' kernels compute, which scale none of their operands
CALLS = frozenset({"Attention", "AttentionSaving", "Conv", "Einsum", "Gemm", "GRU", "LSTM", "MatMul", "RNN"})


@by_place
def scale_products(network: Network) -> int:
    """Let products of matrices scale themselves. Mutates the network, which is not lowered yet.

    Returns:
        how many do.
    """
    forms = [_Scaled(product, scaled) for product in ("MatMul", "Gemm") for scaled in ("Mul", "Div")]
    return rewrite_forms(network, forms, marks=("MatMul", "Gemm"))


class _Scaled(Form):
    """One product, and how it is scaled.

    Args:
        product, scaled: operators.
    """

    shape_of = ""

    def __init__(self, product: str, scaled: str) -> None:
        super().__init__(NAME)
        self.product, self.scaled = product, scaled

    def pattern(self, op: Any, a: Any, b: Any, s: Any) -> Any:
        product = getattr(op, self.product)(a, b, name="product")
        return getattr(op, self.scaled)(product, s, name="scaling")

    def check(self, a: Any, b: Any, s: Any, product: Any, scaling: Any) -> str | None:
        (result,) = scaling.results
        if s.constant is None or s.constant.size != 1:
            return f"{s.array} is not a constant with one element"
        if (reason := rounded_once(a)) is not None:
            return reason
        if not SMALLEST <= self._factor(s) <= 1:
            return f"its factor {self._factor(s):.6g} is not from 2^-16 to 1: {_OUTSIDE}"
        if a.rank != 2 or b.rank != 2 or result.rank != 2:
            return "a batched matrix multiplication has no scale factor"
        if _is_free(result):
            return "its reader is a generated kernel, which scales it at no cost"
        return None

    def rewrite(self, op: Any, a: Any, b: Any, s: Any, product: Any) -> Any:
        factor = self._factor(s)
        if self.product == "MatMul":
            return op.Gemm(a, b, alpha=factor)
        return op.Gemm(a, b, alpha=product.alpha * factor, transA=product.transA, transB=product.transB)

    def _factor(self, s: Value) -> float:
        assert s.constant is not None
        number = float(s.constant.reshape(()))
        return number if self.scaled == "Mul" else 1 / number if number else math.inf


def _is_free(result: Value) -> bool:
    """Whether loops alone read an array, which nobody else gets."""
    return not result.graph.is_result(result.array) and not _calls_read(result.array, result.graph)


def _calls_read(array: str, graph: OperatorGraph) -> bool:
    for node in graph.readers(array):
        if not isinstance(node, ONNXNode):
            continue
        if node.op_type in CALLS:
            return True
        views = graph.results(node) if node.op_type in VIEWS else []
        if any(v is not None and (graph.is_result(v) or _calls_read(v, graph)) for v in views):
            return True
    return False
