"""Maximum and average pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxscript import opset23 as op

from daceml.frontend.translations import UntranslatableError, translates
from daceml.frontend.translations.emit import Value, each, rank_of, sizes_of, typed

Sizes = int | Sequence[int]


def _batched(operator: Any, self: Value, spatial: int, **attributes: Any) -> Value:
    """Pool [N, C, ...]; a lone sample gets its batch dimension and loses it again."""

    def first(result: Any) -> Value:
        return result[0] if isinstance(result, Sequence) else result

    if rank_of(self) == spatial + 2:
        return first(operator(self, **attributes))
    batch = typed(op.Unsqueeze(self, [0]), self, shape=(1, *sizes_of(self)))
    return op.Squeeze(typed(first(operator(batch, **attributes)), dtype=self.dtype), [0])


def _window(spatial: int, kernel_size: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool) -> dict[str, Any]:
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
        if divisor_override is not None:
            raise UntranslatableError("an average with a divisor of its own")
        window = _window(spatial, kernel_size, stride, padding, ceil_mode)
        if count_include_pad and any(window["pads"]):
            window["count_include_pad"] = 1
        return _batched(op.AveragePool, self, spatial, **window)

    return translate


def _adaptive(spatial: int, whole: Any, windowed: Any) -> Any:
    def translate(self: Value, output_size: Sizes) -> Value:
        wanted = each(output_size, spatial)
        given = sizes_of(self)[-spatial:]
        if all(size == 1 for size in wanted):
            return _batched(whole, self, spatial)
        ratios: list[int] = []
        for have, want in zip(given, wanted, strict=True):
            if not isinstance(have, int) or not isinstance(want, int) or have % want:
                raise UntranslatableError(f"adaptive pooling from {given} to {wanted}: windows of several sizes")
            ratios.append(have // want)
        if all(ratio == 1 for ratio in ratios):
            return op.Identity(self)
        return _batched(windowed, self, spatial, kernel_shape=ratios, strides=ratios)

    return translate


for _spatial in (1, 2, 3):
    translates(f"aten.max_pool{_spatial}d.default")(_max_pool(_spatial))
    translates(f"aten.avg_pool{_spatial}d.default")(_avg_pool(_spatial))
    translates(f"aten.adaptive_avg_pool{_spatial}d.default")(_adaptive(_spatial, op.GlobalAveragePool, op.AveragePool))
