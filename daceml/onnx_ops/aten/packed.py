"""Vendor kernels with a packed weight; `daceml.transformations.layout.packed_weights` chooses them by name.

W and B are packed here, and their arrays stand for tensors without a pointer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from daceml.onnx_ops.aten.convolution import convolution
from daceml.onnx_ops.aten.recurrent import layer_flops
from daceml.onnx_ops.aten.views import view
from daceml.onnx_ops.domain.convolution_activation import ACTIVATIONS, DOMAIN
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, FreshResult, PackedWeight
from daceml.sdfg.sizes import Size, product

CONVOLUTION = "packed_convolution"
DEPTHWISE = "depthwise"
POINTWISE = "pointwise"
PRODUCT = "packed_product"
LSTM = "fused_lstm"
# Behind every other one: nodes never come to it by themselves.
_LAST = 1000
Ints = tuple[int, ...] | None


def _refusal() -> str:
    return "only weights that do not change any more are packed (freeze=True)"


@implements("Conv", kind="aten", name=CONVOLUTION, rank=_LAST, when=_refusal, devices=("cpu",))
def packed_convolution(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None = None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
) -> AtenCall:
    """`mkldnn::_convolution_pointwise`, without an activation."""
    return convolution_activation(
        X, W, Y, B, strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad
    )


@implements("ConvActivation", domain=DOMAIN, kind="aten", name=CONVOLUTION, devices=("cpu",))
def convolution_activation(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None = None,
    Z: Tensor | None = None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
    activation: str = "none",
    low: float = 0.0,
    high: float = 0.0,
) -> AtenCall:
    """`mkldnn::_convolution_pointwise`."""
    plain = convolution(
        X, W, Y, B, strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad
    )
    x, _, bias, rank, steps, padding, spread, *_ = plain.arguments
    assert W.array is not None
    packed, more = PackedWeight(array=W.array), None if Z is None else view(Z)
    behind = (ACTIVATIONS.index(activation), float(low), float(high))
    return AtenCall(
        function="packed_convolution",
        arguments=(x, packed, bias, more, rank, steps, padding, spread, group, *behind),
        writes=plain.writes,
        fresh=True,
        flops=plain.flops,
        variety=plain.variety,
        functions=_functions(activation),
        temporary_bytes=plain.temporary_bytes,
    )


@implements("ConvActivation", domain=DOMAIN, kind="aten", name=DEPTHWISE, rank=_LAST, devices=("cpu",))
@implements("Conv", kind="aten", name=DEPTHWISE, rank=_LAST, when=_refusal, devices=("cpu",))
def depthwise(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None = None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
    activation: str = "none",
    low: float = 0.0,
    high: float = 0.0,
) -> AtenCall:
    """A loop of our own over arrays and a weight with their channels innermost in memory; NaN stays NaN."""
    plain = convolution(
        X, W, Y, B, strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad
    )
    x, weight, bias, _, steps, padding, spread, *_ = plain.arguments
    assert isinstance(steps, tuple)
    assert isinstance(padding, tuple)
    assert isinstance(spread, tuple)
    geometry = (*_ints(*X.shape, *Y.shape[2:], *W.shape[2:]), *steps, *padding, *spread)
    return AtenCall(
        function="depthwise",
        arguments=(view(Y), x, weight, bias, geometry, *_behind(activation, low, high)),
        writes=plain.writes,
        flops=plain.flops,
        variety=plain.variety,
        functions=_functions(activation),
    )


@implements("Conv", kind="aten", name=POINTWISE, rank=_LAST, when=_refusal, devices=("cpu",))
def plain_pointwise(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None = None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
) -> AtenCall:
    """`pointwise` without an activation."""
    return pointwise(
        X, W, Y, B, strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad
    )


@implements("ConvActivation", domain=DOMAIN, kind="aten", name=POINTWISE, rank=_LAST, devices=("cpu",))
def pointwise(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None = None,
    Z: Tensor | None = None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
    activation: str = "none",
    low: float = 0.0,
    high: float = 0.0,
) -> AtenCall:
    """A product of matrices of our own, for windows of one element without padding; NaN stays NaN."""
    plain = convolution(
        X, W, Y, B, strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad
    )
    x, _, bias, _, steps, *_ = plain.arguments
    assert isinstance(steps, tuple)
    assert W.array is not None
    geometry = (*_ints(*X.shape, *Y.shape[2:]), *steps, *_ints(W.shape[0]))
    packed, more = PackedWeight(array=W.array), None if Z is None else view(Z)
    return AtenCall(
        function="pointwise",
        arguments=(view(Y), x, packed, bias, more, geometry, *_behind(activation, low, high)),
        writes=plain.writes,
        flops=plain.flops,
        variety=plain.variety,
        functions=_functions(activation),
    )


def _ints(*sizes: Size) -> tuple[int, ...]:
    return tuple(int(n) for n in sizes)  # pyright: ignore[reportArgumentType]


def _behind(activation: str, low: float, high: float) -> tuple[float, float, bool]:
    """Bounds of the result of a loop of our own, and whether it is multiplied by its sigmoid."""
    bounds = {"relu": (0.0, math.inf), "clip": (float(low), float(high))}
    return *bounds.get(activation, (-math.inf, math.inf)), activation == "swish"


def _functions(activation: str) -> tuple[str, ...]:
    return ("sigmoid",) if activation == "swish" else ()


@implements("Gemm", kind="aten", name=PRODUCT, rank=_LAST, when=_refusal, devices=("cpu",))
def packed_product(
    A: Tensor,
    B: Tensor,
    Y: Output,
    C: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> AtenCall:
    """`mkl::_mkl_linear`; it asks for the plain weight, too: for its sizes, and for other numbers of rows."""
    assert B.array is not None
    rows = A.shape[0]
    assert isinstance(rows, int)
    # no call has another number of rows, so any memory will do: the plain weight need not be kept
    sizes_only = view(A, B.shape, (0, 0))
    packed = PackedWeight(array=B.array)
    return AtenCall(
        function="packed_product",
        arguments=(view(A), packed, sizes_only, None if C is None else view(C), rows),
        writes=Y.name,
        fresh=True,
        flops=2 * product(Y.shape) * A.shape[1],
    )


@implements("LSTM", kind="aten", name=LSTM, rank=_LAST, when=_refusal, devices=("cpu",))
def fused_lstm(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    Y: Output | None,
    Y_h: Output | None,
    Y_c: Output | None,
    *,
    activations: Sequence[str] | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> AtenCall:
    """`aten::mkldnn_rnn_layer`: products and gates of a step in one kernel."""
    results, operands = (Y, Y_h, Y_c), (X, W, R, B, initial_h, initial_c)
    written = [r.name for r in results if r is not None]
    ways = 2 if direction == "bidirectional" else 1
    return AtenCall(
        function="fused_lstm",
        arguments=(
            *(None if r is None else FreshResult(array=r.name) if ways == 1 else view(r) for r in results),
            *(None if t is None else view(t) for t in operands),
            ways,
            direction == "reverse",
        ),
        writes=written[0],
        more=tuple(written[1:]),
        flops=layer_flops(X, R),
    )
