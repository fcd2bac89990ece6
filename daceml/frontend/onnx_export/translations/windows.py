"""Windows written out as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import Value, op, sizes_of, typed
from daceml.frontend.onnx_export.translations.shape import pad_tensor


@translates("aten.im2col.default")
def im2col(
    self: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """[…, C, H, W] -> […, C * window, places]: what each element of the window meets at all places."""
    *batch, channels, height, width = sizes_of(self)
    if not (isinstance(channels, int) and isinstance(height, int) and isinstance(width, int)):
        raise UntranslatableError("windows of a size that is not known here")
    if any(padding):
        y, x = padding
        height, width = height + 2 * y, width + 2 * x
        self = typed(pad_tensor(self, [x, x, y, y]), self, shape=(*batch, channels, height, width))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel_size, dilation, strict=True)]
    counts = [
        (extent - span) // s + 1 for extent, span, s in zip((height, width), spans, stride, strict=True)
    ]
    parts: list[Value] = []
    for place in product(*map(range, kernel_size)):
        starts = [i * d for i, d in zip(place, dilation, strict=True)]
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, counts, stride, strict=True)]
        part = typed(
            op.Slice(self, starts, ends, [-2, -1], list(stride)),
            self,
            shape=(*batch, channels, *counts),
        )
        parts.append(typed(op.Unsqueeze(part, [-3]), self, shape=(*batch, channels, 1, *counts)))
    window = math.prod(kernel_size)
    columns = typed(op.Concat(*parts, axis=-3), self, shape=(*batch, channels, window, *counts))
    leading = [0] if batch else []
    return op.Reshape(columns, [*leading, channels * window, counts[0] * counts[1]])


@translates("aten.col2im.default")
def col2im(
    self: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """[N, C * window, places], or without N, -> [N, C, H, W]."""
    if not all(isinstance(size, int) for size in (*output_size, *sizes_of(self)[-2:])):
        raise UntranslatableError("columns for an image of a size that is not known here")
    rows, places = sizes_of(self)[-2:]
    batched = len(sizes_of(self)) == 3
    columns = self if batched else typed(op.Unsqueeze(self, [0]), self, shape=(1, rows, places))
    image = op.Col2Im(
        columns,
        list(output_size),
        list(kernel_size),
        dilations=list(dilation),
        pads=[*padding, *padding],
        strides=list(stride),
    )
    if batched:
        return image
    channels = rows // math.prod(kernel_size)  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    return op.Squeeze(typed(image, self, shape=(1, channels, *output_size)), [0])
