"""Products of matrices with an activation, where no vendor's kernel may do them."""

from __future__ import annotations

from daceml.onnx_ops.domain.gemm_activation import DOMAIN
from daceml.onnx_ops.native.activation import gelu, relu
from daceml.onnx_ops.native.contraction import matrix_product
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor


@implements("GemmActivation", domain=DOMAIN)
def gemm_activation(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    Y: Output,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    activation: str,
) -> None:
    """The sums are complete before the activation reads them."""
    product = matrix_product(A.transpose() if transA else A, B.transpose() if transB else B)
    sums = (product * alpha + C.expand_dims(0)).materialize()
    if activation == "relu":
        relu(sums, Y)
    else:
        gelu(sums, Y, approximate="tanh")
