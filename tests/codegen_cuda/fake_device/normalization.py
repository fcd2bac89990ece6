"""Normalization in half types as CUDA has it: statistics are float32, and not of the weights' type."""

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


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_batch_norm`, which writes its running statistics in training and gives them back otherwise."""
    running = [_wide(one) for one in (running_mean, running_var)]
    y, mean, scale = aten.native_batch_norm(
        _wide(x), _wide(weight), _wide(bias), *running, training, momentum, epsilon
    )
    for given, wide in zip((running_mean, running_var), running, strict=True):
        if training and given is not None and wide is not None:
            given.copy_(wide)
    if not training:
        running_mean, running_var = running
        assert running_mean is not None and running_var is not None
        mean, scale = running_mean, (running_var + epsilon).rsqrt()
    return y.to(x.dtype), mean, scale


def batch_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    scale: Tensor | None,
    training: bool,
    epsilon: float,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """`native_batch_norm_backward`; a gradient that is not wanted is none."""
    running = [_wide(one) for one in (running_mean, running_var)]
    found = aten.native_batch_norm_backward(
        _wide(dy), _wide(x), _wide(weight), *running, mean, scale, training, epsilon, wanted
    )
    return tuple(one if one is None else one.to(x.dtype) for one in found)
