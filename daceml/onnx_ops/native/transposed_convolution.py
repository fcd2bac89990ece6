"""Transposed convolution: each output is a sum over inputs; nothing is scattered and no index divided.

With stride s, output o + pad = q s + r takes input q - t through tap t s + r, for every t. Quotient q and
phase r are loop parameters of their own: all indices are affine. Taps that do not exist are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from daceml.onnx_ops.native.pad import padded
from daceml.onnx_ops.native.windows import transposed_padding
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import maximum, minimum, where
from daceml.onnx_ops.tracing.indexing import divide, floor_div, modulo
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.builder import parameters
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal


@dataclass(frozen=True, kw_only=True)
class TransposedAxis:
    """One spatial dimension.

    Attributes:
        stride, dilation, kernel: as in ONNX.
        outputs: size of the result.
        taps: terms that each output adds up.
        front: place of the first tap among the expanded taps.
        shift: output q takes input q + shift - t.
        before, after: zeros around the input.
    """

    stride: int
    dilation: int
    kernel: int
    outputs: int
    taps: int
    front: int
    shift: int
    before: int
    after: int

    @property
    def expanded(self) -> int:
        """Taps with zeros between, before and behind them; the kernel's own where the stride is 1."""
        return self.kernel if self.stride == 1 else self.taps * self.stride

    def position(self, quotient: Index, tap: Index) -> Index:
        """Index into the padded input."""
        step = self.dilation if self.stride == 1 else 1
        return quotient + (self.shift + self.before) - tap * step

    def boxes(self) -> list[tuple[Index, Index, Index]]:
        """(first quotient, quotients, phases): where the stride does not divide the result, a last part."""
        whole, rest = divmod(self.outputs, self.stride)
        return [box for box in ((0, whole, self.stride), (whole, 1, rest)) if box[1] and box[2]]


def transposed_axis(
    extent: Index, outputs: Index, kernel: Index, stride: int, dilation: int, pad: int
) -> TransposedAxis:
    if not (isinstance(extent, int) and isinstance(outputs, int) and isinstance(kernel, int)):
        raise Refused("a spatial size is symbolic")
    if stride == 1:
        shift, taps, front, reach = pad, kernel, 0, (kernel - 1) * dilation
    else:
        steps, phase = divmod(pad, stride)
        front = (stride - phase) % stride
        shift = steps + (phase > 0)
        taps = -(-(front + (kernel - 1) * dilation + 1) // stride)
        reach = taps - 1
    quotients = -(-outputs // stride)
    return TransposedAxis(
        stride=stride,
        dilation=dilation,
        kernel=kernel,
        outputs=outputs,
        taps=taps,
        front=front,
        shift=shift,
        before=max(0, reach - shift),
        after=max(0, quotients - 1 + shift - (extent - 1)),
    )


def expanded_taps(W: Tensor, axes: Sequence[TransposedAxis]) -> Tensor:
    """The weight with taps at `front + k * dilation` of a multiple of the stride, and zeros elsewhere."""
    lengths = [axis.expanded for axis in axes]
    if all(
        axis.stride == 1 or (axis.dilation == 1 and axis.front == 0 and axis.kernel == length)
        for axis, length in zip(axes, lengths, strict=True)
    ):
        return W

    def element(c: Index, m: Index, *place: Index) -> Scalar:
        index: list[Index | Scalar] = [c, m]
        kept: Scalar | None = None
        for axis, u in zip(axes, place, strict=True):
            if axis.stride == 1:
                index.append(u)
                continue
            offset = index_value(u - axis.front)
            inside = maximum(offset, 0)
            tap = inside if axis.dilation == 1 else floor_div(inside, axis.dilation)
            holds = (offset >= 0) & (tap < axis.kernel)
            if axis.dilation > 1:
                holds = holds & (modulo(inside, axis.dilation) == 0)
            kept = holds if kept is None else kept & holds
            index.append(minimum(tap, axis.kernel - 1))
        value = W[tuple(index)]
        return value if kept is None else where(kept, value, literal(0, compute_type(W.dtype)))

    return compute((*W.shape[:2], *lengths), element).materialize()


@implements(
    "ConvTranspose", name="phases", when=lambda X: None if X.rank >= 3 else "needs [N, C, spatial...]"
)
def transposed_convolution(
    X: Tensor,
    W: Tensor,
    B: Tensor | None,
    Y: Output,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    space = X.rank - 2
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
        raise Refused(found)
    steps, spread = strides or (1,) * space, dilations or (1,) * space
    axes = [
        transposed_axis(*sizes)
        for sizes in zip(X.shape[2:], Y.shape[2:], W.shape[2:], steps, spread, found[0], strict=True)
    ]
    in_group, out_group = divide(X.shape[1], group), W.shape[1]
    if in_group is None:
        raise Refused(f"{X.shape[1]} input channels are not {group} groups")
    write_transposed(X, expanded_taps(W, axes), B, Y, axes, (group, in_group, out_group))


def write_transposed(
    X: Tensor,
    taps: Tensor,
    bias: Tensor | None,
    Y: Output,
    axes: Sequence[TransposedAxis],
    channels: tuple[int, Index, Index],
) -> None:
    """Write all of the result.

    Args:
        taps: what `expanded_taps` makes of the weight.
        channels: groups, input channels and output channels of a group.
    """
    x = padded(X, (0, 0, *(a.before for a in axes)), (0, 0, *(a.after for a in axes)), 0)
    for boxes in product(*(axis.boxes() for axis in axes)):
        _write(x, taps, bias, Y, axes, boxes, channels)


def _write(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    Y: Output,
    axes: Sequence[TransposedAxis],
    boxes: Sequence[tuple[Index, Index, Index]],
    channels: tuple[int, Index, Index],
) -> None:
    """One box of the result. Loops: batch, group, channel, phases, then quotients, which are contiguous."""
    group, in_group, out_group = channels
    space = len(axes)
    # A loop of one step is none.
    extents = [Y.shape[0], group, out_group, *(b[2] for b in boxes), *(b[1] for b in boxes)]
    running = [d for d, extent in enumerate(extents) if d in (0, 2) or extent != 1]
    index: list[Index] = [0] * len(extents)
    for d, parameter in zip(running, parameters(len(running)), strict=True):
        index[d] = parameter
    n, g, m, phases, steps = index[0], index[1], index[2], index[3 : 3 + space], index[3 + space :]
    quotients = [first + step for (first, _, _), step in zip(boxes, steps, strict=True)]

    def term(c: Index, *taps: Index) -> Scalar:
        places = [axis.position(q, t) for axis, q, t in zip(axes, quotients, taps, strict=True)]
        chosen = [
            t if axis.stride == 1 else t * axis.stride + r
            for axis, t, r in zip(axes, taps, phases, strict=True)
        ]
        channel = g * in_group + c
        return x[(n, channel, *places)] * w[(channel, m, *chosen)]

    total = sum_over((in_group, *(axis.taps for axis in axes)), term)
    channel = g * out_group + m
    if bias is not None:
        total = total + bias[channel]
    target = [q * axis.stride + r for axis, q, r in zip(axes, quotients, phases, strict=True)]
    Y.trace.compute(Y.name, [n, channel, *target], [extents[d] for d in running], total)
