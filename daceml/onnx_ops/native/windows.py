"""Geometry of sliding windows, shared by convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows over the spatial dimensions.

    Attributes:
        kernel, strides, dilations: one entry for each spatial dimension.
        before, after: padding.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def position(self, output: Sequence[Index], k: Sequence[Index]) -> list[Index]:
        """Index into the padded input for an output position and an offset in the window."""
        rows = zip(output, self.strides, k, self.dilations, strict=True)
        return [o * stride + offset * dilation for o, stride, offset, dilation in rows]

    def reach(self, axis: int) -> int:
        """Input elements that a window spans along a dimension."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def missing(self, axis: int, extent: Index, outputs: Index, ceil_mode: int) -> int:
        """Elements by which the last window passes the end of the padded input; their bound if symbolic."""
        if not isinstance(extent, int) or not isinstance(outputs, int):
            return self.strides[axis] - 1 if ceil_mode else 0
        needed = (outputs - 1) * self.strides[axis] + self.reach(axis)
        return max(needed - (self.before[axis] + extent + self.after[axis]), 0)


def windows_of(
    extents: Sequence[Index],
    kernel: Sequence[Index],
    *,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Windows:
    """Windows from ONNX attributes; SAME_UPPER and SAME_LOWER give ceil(extent / stride) outputs."""
    rank = len(extents)
    if not all(isinstance(k, int) for k in kernel):
        raise Refused("the size of the kernel is symbolic")
    sizes = tuple(int(k) for k in kernel)  # pyright: ignore[reportArgumentType]
    steps = tuple(strides) if strides else (1,) * rank
    spread = tuple(dilations) if dilations else (1,) * rank
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [_same(e, k, s, d) for e, k, s, d in zip(extents, sizes, steps, spread, strict=True)]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    elif auto_pad == "VALID" or not pads:
        before = after = (0,) * rank
    else:
        before, after = tuple(pads[:rank]), tuple(pads[rank:])
    return Windows(kernel=sizes, strides=steps, dilations=spread, before=before, after=after)


def _same(extent: Index, kernel: int, stride: int, dilation: int) -> int:
    if not isinstance(extent, int):
        raise Refused("auto_pad SAME over a symbolic size")
    outputs = -(-extent // stride)
    return max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0)


def transposed_padding(
    extents: Sequence[Index],
    results: Sequence[Index],
    kernel: Sequence[Index],
    *,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    output_padding: Sequence[int] | None,
    auto_pad: str,
    output_shape: Sequence[int] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]] | str:
    """What is cut off at both sides of each dimension (output_padding adds to the end), or why not.

    Args:
        extents, results, kernel: spatial sizes of input, output and weight.
    """
    rank = len(extents)
    extra = tuple(output_padding) if output_padding else (0,) * rank
    if output_shape is None and auto_pad in ("NOTSET", "", "VALID", None):
        cut = tuple(pads) if pads and auto_pad != "VALID" else (0,) * (2 * rank)
        if min(cut, default=0) < 0:
            return "negative pads"
        return cut[:rank], tuple(after - more for after, more in zip(cut[rank:], extra, strict=True))
    before: list[int] = []
    after: list[int] = []
    for d in range(rank):
        step, spread = strides[d] if strides else 1, dilations[d] if dilations else 1
        total = (extents[d] - 1) * step + extra[d] + (kernel[d] - 1) * spread + 1 - results[d]
        if not isinstance(total, int):
            return "the output's shape decides the pads, and a size is symbolic"
        small = total // 2
        low = small if auto_pad == "SAME_UPPER" else total - small
        before.append(low)
        after.append(total - low - extra[d])
    return tuple(before), tuple(after)
