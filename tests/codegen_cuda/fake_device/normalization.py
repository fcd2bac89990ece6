"""Layer norm in half types as CUDA has it: with statistics in float32; the CPU has those of the weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor
aten = torch.ops.aten


def _wide(value: Tensor | None) -> Tensor | None:
    return value.float() if value is not None and value.element_size() == 2 else value


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_layer_norm`."""
    y, mean, scale = aten.native_layer_norm(_wide(x), shape, _wide(weight), _wide(bias), epsilon)
    return y.to(x.dtype), mean, scale


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """`native_layer_norm_backward`; a gradient that is not wanted is none."""
    found = aten.native_layer_norm_backward(
        _wide(dy), _wide(x), shape, mean, scale, _wide(weight), _wide(bias), wanted
    )
    return tuple(one if one is None else one.to(x.dtype) for one in found)
