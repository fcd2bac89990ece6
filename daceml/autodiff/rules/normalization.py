"""Normalisations: gradients from the statistics that the forward node has computed.

With n = (x - mean) * inverse and g = dy * scale, and means taken over what was normalised:
dx = inverse * (g - mean(g) - n * mean(g n)), dscale = sum(dy n), dbias = sum(dy).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dace
import numpy as np

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.normalization import along_channels
from daceml.onnx_ops.tracing.indexing import axis_of, divide, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.scalar import Index, compute_type

Shape = tuple[Index, ...]


def _wide(x: Tensor) -> Any:
    """The type that statistics have."""
    return dace.float64 if x.dtype == dace.float64 else dace.float32


def _rows(X: Tensor, axis: int) -> tuple[Shape, Any]:
    axis = axis_of(axis, X.rank)
    return (*X.shape[:axis], *(1 for _ in X.shape[axis:])), _wide(X)


def _of_channels(X: Tensor, channel_axis: int = 1) -> tuple[Shape, Any]:
    return (X.shape[channel_axis],), _wide(X)


def _of_instances(input: Tensor) -> tuple[Shape, Any]:
    return input.shape[:2], _wide(input)


def _of_groups(X: Tensor, num_groups: int) -> tuple[Shape, Any]:
    return (X.shape[0], num_groups), _wide(X)


def _single(X: Tensor, stash_type: int) -> str | None:
    if X.dtype == dace.float64:
        return "ONNX has statistics of float32 only"
    return None if stash_type in (None, 1) else "the statistics are of a half type"


def _summed_to(values: Tensor, shape: Shape) -> Tensor:
    """The sum over what a tensor of this shape was broadcast along."""
    missing = values.rank - len(shape)
    repeated = [
        d for d in range(missing, values.rank) if same(shape[d - missing], 1) and not same(values.shape[d], 1)
    ]
    if not repeated:
        return values.sum(range(missing)) if missing else values
    total = values.sum((*range(missing), *repeated), keepdims=True)
    return total.squeeze(*range(missing)) if missing else total


def _input_gradient(g: Tensor, normal: Tensor, inverse: Tensor, axes: Sequence[int], centred: bool) -> Tensor:
    share = (g * normal).mean(axes, keepdims=True).materialize()
    rest = g - normal * share
    return (rest - g.mean(axes, keepdims=True).materialize() if centred else rest) * inverse


_STATISTICS = {"Mean": lambda X, axis: _rows(X, axis), "InvStdDev": lambda X, axis: _rows(X, axis)}


@vjp("LayerNormalizationSaving", domain="daceml", extra=_STATISTICS)
@vjp("LayerNormalization", when=_single, extra=_STATISTICS)
def layer_normalization_vjp(
    X: Tensor,
    Scale: Tensor,
    Mean: Tensor,
    InvStdDev: Tensor,
    dY: Tensor,
    dX: Output | None,
    dScale: Output | None,
    dB: Output | None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    """Rows from `axis` on; a scale or bias may be broadcast along them."""
    normal = (X - Mean) * InvStdDev
    if dScale is not None:
        dScale[:] = _summed_to(dY * normal, Scale.shape)
    if dB is not None:
        dB[:] = _summed_to(dY, dB.shape)
    if dX is not None:
        axes = range(axis_of(axis, X.rank), X.rank)
        dX[:] = _input_gradient(dY * Scale, normal, InvStdDev, axes, centred=True)


@vjp("RMSNormalizationSaving", domain="daceml", extra={"InvStdDev": lambda X, axis: _rows(X, axis)})
def rms_normalization_vjp(
    X: Tensor,
    scale: Tensor,
    InvStdDev: Tensor,
    dY: Tensor,
    dX: Output | None,
    dscale: Output | None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    """As above without a mean: dx = inverse * (g - n mean(g n))."""
    normal = X * InvStdDev
    if dscale is not None:
        dscale[:] = _summed_to(dY * normal, scale.shape)
    if dX is not None:
        axes = range(axis_of(axis, X.rank), X.rank)
        dX[:] = _input_gradient(dY * scale, normal, InvStdDev, axes, centred=False)


@vjp(
    "BatchNormalizationSaving",
    domain="daceml",
    extra={"Mean": _of_channels, "InvStdDev": _of_channels},
)
def batch_normalization_training_vjp(
    X: Tensor,
    scale: Tensor,
    Mean: Tensor,
    InvStdDev: Tensor,
    dY: Tensor,
    dX: Output | None,
    dscale: Output | None,
    dB: Output | None,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 1,
    channel_axis: int = 1,
) -> None:
    """In training: the statistics are those of X. The running ones have no part in the result."""
    axes = [d for d in range(X.rank) if d != channel_axis]

    def along(values: Tensor) -> Tensor:
        return along_channels(values, X.rank, channel_axis)

    normal = (X - along(Mean)) * along(InvStdDev)
    if dscale is not None:
        dscale[:] = (dY * normal).sum(axes)
    if dB is not None:
        dB[:] = dY.sum(axes)
    if dX is None:
        return
    # Means of their own: a gradient of a half type would bring its rounding with it.
    share, middle = (dY * normal).mean(axes).materialize(), dY.mean(axes).materialize()
    factor = (scale.astype(_wide(X)) * InvStdDev).materialize()
    dX[:] = (dY - along(middle) - normal * along(share)) * along(factor)


def _in_inference(training_mode: int | None, since_version: int | None) -> str | None:
    if training_mode:
        return "in training the statistics are those of the input"
    if since_version is not None and since_version < 14:
        return "before opset 14 the statistics have other names"
    return None


@vjp("BatchNormalization", when=_in_inference)
def batch_normalization_vjp(
    X: Tensor,
    scale: Tensor,
    input_mean: Tensor,
    input_var: Tensor,
    dY: Tensor,
    dX: Output | None,
    dscale: Output | None,
    dB: Output | None,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> None:
    """In inference: a scale and a shift of each channel, whose statistics are constants."""
    axes = [d for d in range(X.rank) if d != 1]
    wide = compute_type(input_mean.dtype) if _wide(X) != dace.float64 else dace.float64
    inverse = (1.0 / np.sqrt(input_var.astype(wide) + epsilon)).materialize()
    if dscale is not None:
        centred = X.astype(wide) - along_channels(input_mean.astype(wide), X.rank)
        dscale[:] = (dY.astype(wide) * centred * along_channels(inverse, X.rank)).sum(axes)
    if dB is not None:
        dB[:] = dY.sum(axes)
    if dX is not None:
        factor = (scale.astype(wide) * inverse).materialize()
        dX[:] = dY.astype(wide) * along_channels(factor, X.rank)


@vjp(
    "InstanceNormalizationSaving",
    domain="daceml",
    extra={"Mean": _of_instances, "InvStdDev": _of_instances},
)
def instance_normalization_vjp(
    input: Tensor,
    scale: Tensor,
    Mean: Tensor,
    InvStdDev: Tensor,
    doutput: Tensor,
    dinput: Output | None,
    dscale: Output | None,
    dB: Output | None,
    *,
    epsilon: float = 1e-5,
) -> None:
    """Each channel of each sample."""
    axes = range(2, input.rank)
    mean, inverse = Mean.expand_dims(*axes), InvStdDev.expand_dims(*axes)
    normal = (input - mean) * inverse
    if dscale is not None:
        dscale[:] = (doutput * normal).sum((0, *axes))
    if dB is not None:
        dB[:] = doutput.sum((0, *axes))
    if dinput is not None:
        g = doutput * along_channels(scale, input.rank)
        dinput[:] = _input_gradient(g, normal, inverse, axes, centred=True)


@vjp(
    "GroupNormalizationSaving",
    domain="daceml",
    extra={"Mean": _of_groups, "InvStdDev": _of_groups},
)
def group_normalization_vjp(
    X: Tensor,
    scale: Tensor,
    Mean: Tensor,
    InvStdDev: Tensor,
    dY: Tensor,
    dX: Output | None,
    dscale: Output | None,
    dbias: Output | None,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> None:
    """Groups of channels of each sample; [N, C, …] is taken for [N, G, C / G, …]."""
    grouped = (num_groups, divide(X.shape[1], num_groups))
    shape = (X.shape[0], *grouped, *X.shape[2:])
    x, dy = X.reshape(shape), dY.reshape(shape)
    axes, spatial = range(2, x.rank), range(3, x.rank)
    mean, inverse = Mean.expand_dims(*axes), InvStdDev.expand_dims(*axes)
    normal = (x - mean) * inverse
    if dscale is not None:
        dscale.split(0, grouped)[:] = (dy * normal).sum((0, *spatial))
    if dbias is not None:
        dbias.split(0, grouped)[:] = dy.sum((0, *spatial))
    if dX is not None:
        channels = scale.reshape(grouped)
        g = dy * (channels.expand_dims(*range(2, x.rank - 1)) if spatial else channels)
        dX.split(1, grouped)[:] = _input_gradient(g, normal, inverse, axes, centred=True)
