"""Normalisations. Variances take two passes: the mean first, then the mean of centred squares."""

from __future__ import annotations

from collections.abc import Sequence

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of, divide
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import compute_type

_STASH_TYPES = {1: dace.float32, 10: dace.float16, 11: dace.float64, 16: dace.bfloat16}


def along_channels(values: Tensor, rank: int, axis: int = 1) -> Tensor:
    """[C] as [C, 1, …], to broadcast against [N, C, …], or [N, …, C] where the axis is the last one."""
    return values.expand_dims(*range(1, rank - axis)) if rank - axis > 1 else values


def _widened(x: Tensor, stash_type: int) -> Tensor:
    """X in the type that statistics are computed in; never narrower than its own."""
    stash = compute_type(_STASH_TYPES.get(stash_type, x.dtype))
    return x.astype(stash) if x.dtype != dace.float64 else x


def _statistics(
    x: Tensor, axes: Sequence[int], epsilon: float, Mean: Output | None, InvStdDev: Output | None
) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation with dimensions of size 1, in the outputs that want them."""
    mean = x.mean(axes)
    if Mean is not None:
        Mean[:] = mean
    mean = mean.closed().expand_dims(*axes)
    centred = x - mean
    inverse = 1.0 / np.sqrt((centred * centred).mean(axes) + epsilon)
    if InvStdDev is not None:
        InvStdDev[:] = inverse
    return mean, inverse.closed().expand_dims(*axes)


def _moments(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    mean = x.mean(axes, keepdims=True).materialize()
    centred = x - mean
    return mean, (centred * centred).mean(axes, keepdims=True)


@implements("LayerNormalizationSaving", domain="daceml")
@implements("LayerNormalization")
def layer_normalization(
    X: Tensor,
    Scale: Tensor,
    B: Tensor | None,
    Y: Output,
    Mean: Output | None,
    InvStdDev: Output | None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    axes = range(axis_of(axis, X.rank), X.rank)
    x = _widened(X, stash_type)
    mean = x.mean(axes, keepdims=True)
    if Mean is not None:
        Mean[:] = mean
    mean = mean.closed()
    centred = x - mean
    inverse = 1.0 / np.sqrt((centred * centred).mean(axes, keepdims=True) + epsilon)
    if InvStdDev is not None:
        InvStdDev[:] = inverse
    result = (centred * inverse).astype(compute_type(X.dtype)) * Scale
    Y[:] = result if B is None else result + B


@implements("RMSNormalizationSaving", domain="daceml")
@implements("RMSNormalization")
def rms_normalization(
    X: Tensor,
    scale: Tensor,
    Y: Output,
    InvStdDev: Output | None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    axes = range(axis_of(axis, X.rank), X.rank)
    x = _widened(X, stash_type)
    inverse = 1.0 / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)
    if InvStdDev is not None:
        InvStdDev[:] = inverse
    Y[:] = (x * inverse).astype(compute_type(X.dtype)) * scale.astype(compute_type(X.dtype))


def _normalize(
    X: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, B: Tensor, epsilon: float, axis: int = 1
) -> Tensor:
    wide = compute_type(X.dtype)
    if wide != dace.float64:
        wide = compute_type(mean.dtype)
    # In memory: with the channels innermost, a loop would take a root and a quotient for every element.
    factor = (scale.astype(wide) / np.sqrt(variance + epsilon)).materialize()
    result = (X.astype(wide) - along_channels(mean, X.rank, axis)) * along_channels(factor, X.rank, axis)
    return result + along_channels(B.astype(wide), X.rank, axis)


@implements("BatchNormalizationSaving", domain="daceml")
@implements("BatchNormalization")
def batch_normalization(
    X: Tensor,
    scale: Tensor,
    B: Tensor,
    input_mean: Tensor | None,
    input_var: Tensor | None,
    mean_in: Tensor | None,
    var_in: Tensor | None,
    Y: Output,
    running_mean: Output | None,
    running_var: Output | None,
    Mean: Output | None,
    InvStdDev: Output | None,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    channel_axis: int = 1,
) -> None:
    if not spatial:
        raise Refused("spatial=0 (statistics of each position) is not written")
    # Before opset 14 the statistics were called mean and var, like the outputs.
    old_mean = next((t for t in (input_mean, mean_in) if t is not None), None)
    old_variance = next((t for t in (input_var, var_in) if t is not None), None)
    if old_mean is None or old_variance is None:
        raise Refused("the running statistics are missing")
    if not training_mode:
        if Mean is not None or InvStdDev is not None:
            raise Refused("in inference there are no statistics of the batch")
        Y[:] = _normalize(X, old_mean, old_variance, scale, B, epsilon)
        return
    axes = [d for d in range(X.rank) if d != channel_axis]
    batch_mean, batch_variance = _moments(X, axes)
    batch_variance = batch_variance.materialize()
    batch_mean, batch_variance = batch_mean.squeeze(*axes), batch_variance.squeeze(*axes)
    Y[:] = _normalize(X, batch_mean, batch_variance, scale, B, epsilon, channel_axis)
    if Mean is not None:
        Mean[:] = batch_mean
    if InvStdDev is not None:
        InvStdDev[:] = 1.0 / np.sqrt(batch_variance + epsilon)
    # ONNX keeps the population variance, and momentum is the weight of the old value.
    if running_mean is not None:
        running_mean[:] = momentum * old_mean + (1 - momentum) * batch_mean.astype(
            compute_type(old_mean.dtype)
        )
    if running_var is not None:
        running_var[:] = momentum * old_variance + (1 - momentum) * batch_variance.astype(
            compute_type(old_variance.dtype)
        )


@implements("InstanceNormalizationSaving", domain="daceml")
@implements("InstanceNormalization")
def instance_normalization(
    input: Tensor,
    scale: Tensor,
    B: Tensor,
    output: Output,
    Mean: Output | None,
    InvStdDev: Output | None,
    *,
    epsilon: float = 1e-5,
) -> None:
    mean, inverse = _statistics(input, range(2, input.rank), epsilon, Mean, InvStdDev)
    normal = (input - mean) * inverse
    output[:] = normal * along_channels(scale, input.rank) + along_channels(B, input.rank)


@implements("GroupNormalizationSaving", domain="daceml")
@implements("GroupNormalization")
def group_normalization(
    X: Tensor,
    scale: Tensor,
    bias: Tensor,
    Y: Output,
    Mean: Output | None,
    InvStdDev: Output | None,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    in_group = divide(X.shape[1], num_groups)
    if in_group is None:
        raise Refused(f"{X.shape[1]} channels are not {num_groups} groups")
    grouped = (num_groups, in_group)
    x = _widened(X, stash_type).reshape((X.shape[0], *grouped, *X.shape[2:]))
    mean, inverse = _statistics(x, range(2, x.rank), epsilon, Mean, InvStdDev)
    normal = (x - mean) * inverse

    def along_groups(values: Tensor) -> Tensor:
        values = values.reshape(grouped).astype(compute_type(X.dtype))
        return values.expand_dims(*range(2, x.rank - 1)) if x.rank > 3 else values

    Y.split(1, grouped)[:] = normal.astype(compute_type(X.dtype)) * along_groups(scale) + along_groups(bias)


@implements("LpNormalization")
def lp_normalization(input: Tensor, output: Output, *, axis: int = -1, p: int = 2) -> None:
    norm = (
        np.abs(input).sum(axis, keepdims=True)
        if p == 1
        else np.sqrt((input * input).sum(axis, keepdims=True))
    )
    # Zeros stay zeros.
    output[:] = input / where(norm == 0, 1, norm)


@implements("MeanVarianceNormalization")
def mean_variance_normalization(X: Tensor, Y: Output, *, axes: Sequence[int] = (0, 2, 3)) -> None:
    mean, variance = _moments(X, tuple(axes))
    Y[:] = (X - mean) / (np.sqrt(variance) + 1e-9)
