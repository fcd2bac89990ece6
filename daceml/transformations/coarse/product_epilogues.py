"""ProductEpilogues: on CUDA devices a product of matrices applies the activation behind it before it writes.

Gelu(Gemm(A, B, c))   ->   GemmActivation(A, B, c)      approximate="tanh"; Relu where `relu` is set

Also with the Reshape of a linear layer between them. It spares a kernel that reads and writes the result; it
is not measured. Left out by default, because cuBLASLt does not promise eager's numbers: relu, which may turn
NaN into 0 (its max(x, 0)), and GELU in float32, whose tanh is approximated to an accuracy that is not stated.
Half types round the sum once less than eager does. GELU by erf is never taken: the epilogue is the
approximation by tanh. In training backward needs the sum, so it is for inference. What the processor runs
stays as it is: torch's kernel there applies another GELU.
"""

from __future__ import annotations

from typing import Any

import dace

from daceml.onnx_ops.domain.gemm_activation import DOMAIN
from daceml.sdfg.network import Device, Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms

NAME = "ProductEpilogues"
# Where torch has these epilogues with these numbers
DEVICE: Device = "cuda"
_HALVES = ("float16", "bfloat16")


@by_place
def fuse_product_epilogues(network: Network, *, relu: bool = False) -> int:
    """Let products apply the activation behind them. Mutates the network, which is not lowered yet.

    Args:
        relu: also a relu, which may then turn NaN into 0.
    Returns:
        how many do.
    """
    forms = [
        form(activation, relu) for activation in ("Gelu", "Relu") for form in (_Activated, _ActivatedRows)
    ]
    return rewrite_forms(network, forms, marks=("Gelu", "Relu"))


class _Activated(Form):
    """activation(a b + c)

    Args:
        activation: operator.
        relu: of the pass.
    """

    shape_of = ""

    def __init__(self, activation: str, relu: bool) -> None:
        super().__init__(NAME)
        self.activation, self.relu = activation, relu

    def pattern(self, op: Any, a: Any, b: Any, c: Any) -> Any:
        return getattr(op, self.activation)(op.Gemm(a, b, c, name="product"), name="activation")

    def check(self, a: Any, c: Any, product: Any, activation: Any) -> str | None:
        if a.graph.network.device != DEVICE:
            return "epilogues are torch's for CUDA devices"
        (result,) = product.results
        if c.shape != result.shape[1:]:
            return f"its addend has shape {list(c.shape)} instead of one element per column"
        if product.beta != 1:
            return f"its addend is scaled by {product.beta:.6g}"
        return self._other_numbers(a.dtype, activation)

    def _other_numbers(self, dtype: dace.typeclass, activation: Any) -> str | None:
        """Why the kernel's numbers are not eager's."""
        kind = dtype.to_string()
        if self.activation == "Relu":
            if not self.relu:
                return "cuBLASLt's relu may turn NaN into 0"
            return None if kind in ("float32", *_HALVES) else f"cuBLASLt's epilogues are not for {kind}"
        if activation.approximate != "tanh":
            return "cuBLASLt's GELU is the approximation by tanh"
        return None if kind in _HALVES else f"how close cuBLASLt's GELU is in {kind} is not stated"

    def rewrite(self, op: Any, a: Any, b: Any, c: Any, product: Any) -> Any:
        (result,) = product.results
        return op.GemmActivation(
            a,
            b,
            c,
            domain=DOMAIN,
            shape=result.shape,
            dtype=a.dtype,
            activation="relu" if self.activation == "Relu" else "gelu_tanh",
            alpha=product.alpha,
            transA=product.transA,
            transB=product.transB,
        )


class _ActivatedRows(_Activated):
    """activation(reshape(a b + c)), as a linear layer of more dimensions is"""

    def pattern(self, op: Any, a: Any, b: Any, c: Any, sizes: Any) -> Any:  # pyright: ignore
        rows = op.Reshape(op.Gemm(a, b, c, name="product"), sizes, name="reshaping")
        return getattr(op, self.activation)(rows, name="activation")

    def rewrite(self, op: Any, a: Any, b: Any, c: Any, sizes: Any, product: Any, reshaping: Any) -> Any:  # pyright: ignore
        (result,) = reshaping.results
        made = super().rewrite(op, a, b, c, product)
        return op.Reshape(made, sizes, shape=result.shape, allowzero=reshaping.allowzero)
