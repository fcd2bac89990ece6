"""Maximum and average pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_export.translations import UnsupportedError, UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    Value,
    array,
    each,
    full,
    is_static,
    op,
    rank_of,
    sizes_of,
    typed,
)

Sizes = int | Sequence[int]


def _batched(operator: Any, self: Value, spatial: int, **attributes: Any) -> Value:
    """Pool [N, C, ...]; a lone sample gets its batch dimension and loses it again."""

    def first(result: Any) -> Value:
        return result[0] if isinstance(result, Sequence) else result

    if rank_of(self) == spatial + 2:
        return first(operator(self, **attributes))
    batch = typed(op.Unsqueeze(self, [0]), self, shape=(1, *sizes_of(self)))
    return op.Squeeze(typed(first(operator(batch, **attributes)), dtype=self.dtype), [0])


def _window(
    spatial: int, kernel_size: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool
) -> dict[str, Any]:
    kernel = each(kernel_size, spatial)
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        # torch's empty stride is the window itself
        "strides": each(stride, spatial) or kernel,
        "pads": each(padding, spatial) * 2,
    }
    return attributes | ({"ceil_mode": 1} if ceil_mode else {})


def _max_pool(spatial: int) -> Any:
    def translate(
        self: Value,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Value:
        window = _window(spatial, kernel_size, stride, padding, ceil_mode)
        if any(d != 1 for d in each(dilation, spatial)):
            window["dilations"] = each(dilation, spatial)
        return _batched(op.MaxPool, self, spatial, **window)

    return translate


def _avg_pool(spatial: int) -> Any:
    def translate(
        self: Value,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        if divisor_override is not None and (ceil_mode or not count_include_pad):
            raise UnsupportedError("an average with a divisor of its own over windows of several sizes")
        window = _window(spatial, kernel_size, stride, padding, ceil_mode)
        if count_include_pad and any(window["pads"]):
            window["count_include_pad"] = 1
        y = _batched(op.AveragePool, self, spatial, **window)
        if divisor_override is None:
            return y
        return op.Mul(typed(y, dtype=self.dtype), math.prod(window["kernel_shape"]) / divisor_override)

    return translate


def _mean_of_windows(self: Value, wanted: list[int]) -> Value:
    """Windows of several sizes: P X Q^T, whose constant rows average one window each."""
    sizes = sizes_of(self)
    spatial = len(wanted)
    if spatial > 2 or not all(isinstance(size, int) for size in sizes[-spatial:]):
        raise UntranslatableError(f"adaptive pooling from {sizes} to {wanted}")
    kind = self.dtype or ir.DataType.FLOAT

    def rows(have: int, want: int) -> np.ndarray:
        matrix = np.zeros((want, have))
        for row in range(want):
            start, end = row * have // want, -(-(row + 1) * have // want)
            matrix[row, start:end] = 1 / (end - start)
        return matrix

    right = array(rows(sizes[-1], wanted[-1]).T, kind)  # pyright: ignore[reportArgumentType]
    y = typed(op.MatMul(self, right), self, shape=(*sizes[:-1], wanted[-1]))
    return y if spatial == 1 else op.MatMul(array(rows(sizes[-2], wanted[0]), kind), y)  # pyright: ignore[reportArgumentType]


def _adaptive(spatial: int) -> Any:
    def translate(self: Value, output_size: Sizes) -> Value:
        wanted = each(output_size, spatial)
        given = sizes_of(self)[-spatial:]
        if all(size == 1 for size in wanted):
            return _batched(op.GlobalAveragePool, self, spatial)
        if not all(
            isinstance(have, int) and have % want == 0 for have, want in zip(given, wanted, strict=True)
        ):
            return _mean_of_windows(self, wanted)
        ratios = [have // want for have, want in zip(given, wanted, strict=True)]  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
        if all(ratio == 1 for ratio in ratios):
            return op.Identity(self)
        return _batched(op.AveragePool, self, spatial, kernel_shape=ratios, strides=ratios)

    return translate


@translates("aten.max_unpool2d.default")
def max_unpool2d(self: Value, indices: Value, output_size: Sequence[int | Value]) -> Value:
    return _placed_back(self, indices, output_size)


@translates("aten.max_unpool3d.default")
def max_unpool3d(
    self: Value,
    indices: Value,
    output_size: Sequence[int | Value],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Value:
    return _placed_back(self, indices, output_size)


def _placed_back(self: Value, indices: Value, output_size: Sequence[int | Value]) -> Value:
    """A scatter into one row an image, so that an index outside of its image is an error."""
    sizes, wanted = sizes_of(self), [size for size in output_size if isinstance(size, int)]
    if not is_static(sizes) or len(wanted) < len(output_size):
        raise UnsupportedError("unpooling to a symbolic size")
    outer = sizes[: len(sizes) - len(wanted)]
    rows = [*outer, math.prod(sizes[len(outer) :])]
    zeros = full([*outer, math.prod(wanted)], 0.0, self.dtype or ir.DataType.FLOAT)
    values, places = (typed(op.Reshape(t, rows), t, shape=rows) for t in (self, indices))
    return op.Reshape(typed(op.ScatterElements(zeros, places, values, axis=-1), zeros), [*outer, *wanted])


for _spatial in (1, 2, 3):
    translates(f"aten.max_pool{_spatial}d.default")(_max_pool(_spatial))
    translates(f"aten.avg_pool{_spatial}d.default")(_avg_pool(_spatial))
    translates(f"aten.adaptive_avg_pool{_spatial}d.default")(_adaptive(_spatial))
