"""Convolution by torch's choice of kernel: oneDNN on a CPU, cuDNN on a GPU."""

from __future__ import annotations

from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import Size, product

Ints = tuple[int, ...] | None


def _padding(
    X: Tensor, Y: Output, kernel: tuple[Size, ...], strides: Ints, pads: Ints, dilations: Ints, auto_pad: str
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


def _refusal(
    X: Tensor,
    W: Tensor,
    Y: Output,
    B: Tensor | None,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    auto_pad: str,
) -> str | None:
    if X.rank not in (3, 4, 5):
        return f"torch convolves over one to three spatial dimensions, not {X.rank - 2}"
    found = _padding(X, Y, W.shape[2:], strides, pads, dilations, auto_pad)
    if isinstance(found, str):
        return found
    return no_empty_operand(X, W) or float_operands(X, W, Y, B)


@implements("Conv", kind="aten", name="convolution", when=_refusal)
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
    padding = _padding(X, Y, W.shape[2:], strides, pads, dilations, auto_pad)
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
    )
