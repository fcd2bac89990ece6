"""Operators of cuDNN, and dropout as CUDA has it, by operators of the processor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


def convolution(
    x: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *_: bool,
) -> Tensor:
    """`cudnn_convolution`; flags of cuDNN have no meaning here."""
    return aten.convolution(x, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)


def convolution_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """`relu(x * weight + bias)`."""
    return aten.convolution(
        x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups
    ).relu()


def convolution_add_relu(
    x: Tensor,
    weight: Tensor,
    z: Tensor,
    alpha: float | None,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """`relu(x * weight + alpha z + bias)`."""
    y = aten.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)
    return (y + (1 if alpha is None else alpha) * z).relu()


def batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, None]:
    """`cudnn_batch_norm`, without memory of cuDNN's own."""
    found = aten.native_batch_norm(x, weight, bias, mean, variance, training, momentum, epsilon)
    return (*found, None)


def batch_norm_backward(
    x: Tensor,
    dy: Tensor,
    weight: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    saved_mean: Tensor | None,
    saved_scale: Tensor | None,
    epsilon: float,
    _: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """`cudnn_batch_norm_backward`, which only training calls."""
    return aten.native_batch_norm_backward(
        dy, x, weight, mean, variance, saved_mean, saved_scale, True, epsilon, [True] * 3
    )


def dropout(x: Tensor, p: float, train: bool | None, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`native_dropout`, whose mask is drawn from a generator."""
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = torch.empty_like(x, dtype=torch.float32).bernoulli_(1 - p, generator=generator).bool()
    return torch.where(kept, x / (1 - p) if p < 1 else x, torch.zeros_like(x)), kept
