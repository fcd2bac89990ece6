"""Products and convolutions on CUDA devices with an activation in the same call: cuBLASLt and cuDNN."""

from __future__ import annotations

import dace

from daceml.onnx_ops.aten.contraction import matrix_view
from daceml.onnx_ops.aten.convolution import Ints, symmetric_padding
from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.domain.convolution_activation import DOMAIN
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import product

_TYPES = (dace.float32, dace.float16, dace.bfloat16)


def _product_refusal(A: Tensor, B: Tensor, C: Tensor, Y: Output) -> str | None:
    if A.dtype not in _TYPES:
        return f"cuBLASLt's epilogues are for float32 and half types, not for {A.dtype.to_string()}"
    return no_empty_operand(A, B) or float_operands(A, B, C, Y)


@implements(
    "GemmActivation",
    domain=DOMAIN,
    kind="aten",
    name="addmm_activation",
    when=_product_refusal,
    devices=("cuda",),
)
def product_with_activation(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    Y: Output,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    activation: str,
) -> AtenCall:
    """`aten::_addmm_activation`, whose GELU is the approximation by tanh on CUDA devices."""
    return AtenCall(
        function="device_addmm_activation",
        arguments=(
            view(C),
            matrix_view(A, transA),
            matrix_view(B, transB),
            1.0,
            float(alpha),
            activation == "gelu_tanh",
        ),
        writes=Y.name,
        fresh=True,
        flops=2 * product(Y.shape) * A.shape[0 if transA else 1],
    )


def _convolution_refusal(
    X: Tensor,
    W: Tensor,
    B: Tensor | None,
    Z: Tensor | None,
    Y: Output,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    auto_pad: str,
    group: int,
    activation: str,
) -> str | None:
    if activation != "relu":
        return f"cuDNN's fused convolution has relu, not {activation}"
    if B is None:
        return "it has no bias: torch would fill zeros for one at each call"
    if group != 1:
        return f"{group} groups: cuDNN fuses few convolutions of groups"
    if X.rank != 4:
        return f"a convolution over {X.rank - 2} dimensions, not two"
    if X.dtype not in _TYPES:
        return f"cuDNN's fused convolution is for float32 and half types, not for {X.dtype.to_string()}"
    found = symmetric_padding(X, Y, W.shape[2:], strides, pads, dilations, auto_pad)
    if isinstance(found, str):
        return found
    return no_empty_operand(X, W) or float_operands(X, W, Y, B, Z)


@implements(
    "ConvActivation", domain=DOMAIN, kind="aten", name="cudnn", when=_convolution_refusal, devices=("cuda",)
)
def convolution_with_relu(
    X: Tensor,
    W: Tensor,
    B: Tensor,
    Z: Tensor | None,
    Y: Output,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
    activation: str,
    low: float = 0.0,
    high: float = 0.0,
) -> AtenCall:
    """`aten::cudnn_convolution_relu`, or `_add_relu` where something is added first."""
    padding = symmetric_padding(X, Y, W.shape[2:], strides, pads, dilations, auto_pad)
    assert not isinstance(padding, str), "refused before"
    return AtenCall(
        function="device_convolution_relu",
        arguments=(
            view(X),
            view(W),
            view(B),
            None if Z is None else view(Z),
            2,
            tuple(strides or (1, 1)),
            padding,
            tuple(dilations or (1, 1)),
            group,
        ),
        writes=Y.name,
        fresh=True,
        flops=2 * product(Y.shape) * product(W.shape[1:]),
    )
