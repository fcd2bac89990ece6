"""Convolution by torch's choice of kernel: oneDNN on a CPU, cuDNN on a GPU."""

from __future__ import annotations

import dace

from daceml.onnx_ops.aten.views import bytes_of, float_operands, no_empty_operand, view
from daceml.onnx_ops.native.windows import transposed_padding
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import Size, product

Ints = tuple[int, ...] | None

# Depthwise, float32 (benchmarks/crossover.py): generated loops take 0.2 of torch's time at 18 thousand
# products and twice its time at 1.4 million; torch's call alone costs as much as 0.3 million.
_FEWEST_DEPTHWISE_PRODUCTS = 100_000


def symmetric_padding(
    X: Tensor, Y: Tensor, kernel: tuple[Size, ...], strides: Ints, pads: Ints, dilations: Ints, auto_pad: str
) -> tuple[int, ...] | str:
    """Padding of each spatial dimension, the same on both sides, or why there is none."""
    rank = X.rank - 2
    if auto_pad in ("NOTSET", "", "VALID", None):
        pads = pads if pads is not None and auto_pad != "VALID" else (0,) * (2 * rank)
        if pads[:rank] != pads[rank:]:
            return f"pads {list(pads)} differ between the two sides"
        if min(pads) < 0:
            return "negative pads"
        return tuple(pads[:rank])
    chosen: list[int] = []
    for d in range(rank):
        stride = strides[d] if strides else 1
        dilation = dilations[d] if dilations else 1
        total = (Y.shape[d + 2] - 1) * stride + (kernel[d] - 1) * dilation + 1 - X.shape[d + 2]
        if not isinstance(total, int):
            return f"auto_pad={auto_pad} on a symbolic size"
        total = max(total, 0)
        if total % 2:
            return f"auto_pad={auto_pad} pads one side more than the other"
        chosen.append(total // 2)
    return tuple(chosen)


def convolution_refusal(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    auto_pad: str,
) -> str | None:
    """Why torch does not take a convolution."""
    if X.rank not in (3, 4, 5):
        return f"torch convolves over one to three spatial dimensions, not {X.rank - 2}"
    found = symmetric_padding(X, Y, W.shape[2:], strides, pads, dilations, auto_pad)
    if isinstance(found, str):
        return found
    return no_empty_operand(X, W) or float_operands(X, W, Y, B) or small_depthwise(X, W, Y)


def small_depthwise(X: Tensor, W: Tensor, Y: Tensor) -> str | None:
    """Why a loop of our own is faster."""
    products = product((*Y.shape, *W.shape[1:]))
    if X.dtype != dace.float32 or W.shape[1] != 1 or W.shape[0] != X.shape[1]:
        return None
    if not isinstance(products, int) or products >= _FEWEST_DEPTHWISE_PRODUCTS:
        return None
    return f"depthwise, and its {products} products cost less than torch's call"


def temporary_bytes(X: Tensor, W: Tensor, Y: Tensor | Output) -> Size:
    """What a convolution or its gradient takes besides its results, as seen in torch 2.13 on x86.

    oneDNN copies operands into blocked layouts and takes scratch of a weight's size; in half types it
    accumulates in float32. For float64 torch writes the windows of one group as columns.
    """
    copies = bytes_of(X, W, Y, W)
    if X.dtype != dace.float64:
        return copies if X.dtype == dace.float32 else 2 * copies
    if all(k == 1 for k in W.shape[2:]):
        return copies
    return copies + product((Y.shape[0], *Y.shape[2:], *W.shape[1:])) * X.dtype.bytes


@implements("Conv", kind="aten", name="convolution", when=convolution_refusal)
def convolution(
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
    """The result's buffer is torch's own: no copy."""
    rank = X.rank - 2
    padding = symmetric_padding(X, Y, W.shape[2:], strides, pads, dilations, auto_pad)
    assert not isinstance(padding, str), "refused before"
    ones, zeros = (1,) * rank, (0,) * rank
    return AtenCall(
        function="convolution",
        arguments=(
            view(X),
            view(W),
            None if B is None else view(B),
            rank,
            tuple(strides or ones),
            padding,
            tuple(dilations or ones),
            False,
            zeros,
            group,
        ),
        writes=Y.name,
        fresh=True,
        flops=2 * product(Y.shape) * product(W.shape[1:]),
        variety=variety(W, group, tuple(strides or ones)),
        temporary_bytes=temporary_bytes(X, W, Y),
    )


def variety(W: Tensor, group: int, strides: tuple[int, ...]) -> tuple[str, str]:
    """How the windows of a convolution are: kernels differ in what they make of as many operations."""
    windows = f"{'x'.join(map(str, W.shape[2:]))} by {'x'.join(map(str, strides))}"
    if group > 1:
        return "depthwise" if W.shape[1] == 1 else "grouped", windows
    return "pointwise" if all(k == 1 for k in W.shape[2:]) else "windows", windows


def transposed_geometry(
    X: Tensor,
    W: Tensor,
    Y: Tensor,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    output_padding: Ints,
    auto_pad: str,
    output_shape: Ints,
) -> tuple[tuple[int, ...], tuple[int, ...]] | str:
    """torch's padding and output padding of each spatial dimension, or why there are none."""
    found = transposed_padding(
        X.shape[2:],
        Y.shape[2:],
        W.shape[2:],
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=output_padding,
        auto_pad=auto_pad,
        output_shape=output_shape,
    )
    if isinstance(found, str):
        return found
    before, after = found
    extra = tuple(b - a for b, a in zip(before, after, strict=True))
    if min(before) < 0:
        return "negative pads"
    if min(extra) < 0:
        return f"more is cut off at the end {list(after)} than at the begin {list(before)}"
    for d, more in enumerate(extra):
        limit = max(strides[d] if strides else 1, dilations[d] if dilations else 1)
        if more >= limit:
            return f"an output padding of {more} is not below stride and dilation"
    return before, extra


def _transposed_refusal(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    output_padding: Ints,
    auto_pad: str,
    output_shape: Ints,
) -> str | None:
    if X.rank not in (3, 4, 5):
        return f"torch convolves over one to three spatial dimensions, not {X.rank - 2}"
    found = transposed_geometry(X, W, Y, strides, pads, dilations, output_padding, auto_pad, output_shape)
    if isinstance(found, str):
        return found
    return no_empty_operand(X, W) or float_operands(X, W, Y, B)


@implements("ConvTranspose", kind="aten", name="convolution", when=_transposed_refusal)
def transposed_convolution(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None = None,
    *,
    strides: Ints = None,
    pads: Ints = None,
    dilations: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
) -> AtenCall:
    """The same call of torch with `transposed`; the result's buffer is torch's own."""
    found = transposed_geometry(X, W, Y, strides, pads, dilations, output_padding, auto_pad, output_shape)
    assert not isinstance(found, str), "refused before"
    padding, extra = found
    rank = X.rank - 2
    return AtenCall(
        function="convolution",
        arguments=(
            view(X),
            view(W),
            None if B is None else view(B),
            rank,
            tuple(strides or (1,) * rank),
            padding,
            tuple(dilations or (1,) * rank),
            True,
            extra,
            group,
        ),
        writes=Y.name,
        fresh=True,
        flops=2 * product(X.shape) * product(W.shape[1:]),
        variety=("transposed",),
        temporary_bytes=temporary_bytes(X, W, Y),
    )
