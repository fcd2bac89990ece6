"""Gradients of average pooling by torch, where the loops of the rule cannot be: over symbolic sizes."""

from __future__ import annotations

from daceml.onnx_ops.aten.convolution import Ints, symmetric_padding
from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import product

# After the native form: it writes each element once, and in order
_RANK = 250


def _refusal(
    dY: Tensor,
    dX: Output,
    kernel_shape: tuple[int, ...],
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    auto_pad: str,
) -> str | None:
    if dX.rank not in (4, 5):
        return f"torch pools over two or three spatial dimensions, not {dX.rank - 2}"
    if dilations and set(dilations) != {1}:
        return "torch's average has no dilations"
    found = symmetric_padding(dX, dY, tuple(kernel_shape), strides, pads, dilations, auto_pad)
    if isinstance(found, str):
        return found
    return no_empty_operand(dY) or float_operands(dY, dX)


@implements("AveragePoolGrad", domain=GRADIENTS, kind="aten", name="average_pool", rank=_RANK, when=_refusal)
def average_pool_gradient(
    dY: Tensor,
    dX: Output,
    *,
    kernel_shape: tuple[int, ...],
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> AtenCall:
    """Of the input torch wants the sizes only: a view of one element, repeated, has them."""
    padding = symmetric_padding(dX, dY, tuple(kernel_shape), strides, pads, dilations, auto_pad)
    assert not isinstance(padding, str), "refused before"
    rank = dX.rank - 2
    return AtenCall(
        function="average_pool_backward",
        arguments=(
            view(dY),
            view(dY, dX.shape, (0,) * dX.rank),
            rank,
            tuple(kernel_shape),
            tuple(strides or (1,) * rank),
            padding,
            bool(ceil_mode),
            bool(count_include_pad),
        ),
        writes=dX.name,
        fresh=True,
        flops=product((*dY.shape, *kernel_shape)),
    )
